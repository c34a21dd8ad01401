// Embedding on a CUDA device: every sum is fp32 in a known order, so its bits are too.
#include "gpu/embedding_kernels.h"

#include "gpu/token_batches.h"

namespace headrace::test {
namespace {

constexpr float poison = std::numeric_limits<float>::quiet_NaN();  // where results must be written

struct Tables {
  std::int64_t width, positions;
  DType dtype;
  bool aligned;
  std::size_t offset() const { return aligned ? 0 : size_of(dtype); }
  std::size_t numel(std::int64_t rows) const { return static_cast<std::size_t>(rows * width); }
  Matrix on(const Operand& table, std::int64_t rows) const {
    return matrix(table.data(), dtype, rows, width);
  }
};

struct Gradients {
  std::vector<float> token, position;
  bool operator==(const Gradients&) const = default;
};

// Row by row in their order, in fp32, each rounded once.
Gradients plain_gradients(const Tokens& tokens, const Tables& tables, const std::vector<float>& dx,
                          const std::vector<float>& tied) {
  Gradients plain{tied, std::vector<float>(tables.numel(tables.positions))};
  if (tied.empty()) plain.token.resize(tables.numel(tokens.vocabulary));
  for (std::int64_t row = 0; row < tokens.rows(); ++row)
    for (std::int64_t i = 0; i < tables.width; ++i) {
      const float term = dx[static_cast<std::size_t>(row * tables.width + i)];
      const std::int64_t id = tokens.input(row), position = row % tokens.sequence;
      if (id >= 0 && id < tokens.vocabulary)
        plain.token[static_cast<std::size_t>(id * tables.width + i)] += term;
      plain.position[static_cast<std::size_t>(position * tables.width + i)] += term;
    }
  return {rounded(tables.dtype, plain.token), rounded(tables.dtype, plain.position)};
}

class EmbeddingKernels : public GpuTest {
 protected:
  std::vector<float> embed(const Tokens& tokens, const Tables& tables, const std::vector<float>& token_values,
                           const std::vector<float>& position_values) {
    const Operand ids(*device, tokens.ids);
    const Operand token_table(*device, tables.dtype, token_values, tables.offset());
    const Operand position_table(*device, tables.dtype, position_values, tables.offset());
    const Operand x(*device, tables.dtype, std::vector<float>(tables.numel(tokens.rows()), poison),
                    tables.offset());
    embedding(queue(), {.tokens = tokens.on(ids),
                        .token_table = tables.on(token_table, tokens.vocabulary),
                        .position_table = tables.on(position_table, tables.positions),
                        .x = x.data()});
    return x.values_of(tables.dtype);
  }

  Gradients gradients(const Tokens& tokens, const Tables& tables, const std::vector<float>& dx_values,
                      const std::vector<float>& tied_values) {
    const Operand ids(*device, tokens.ids), dx(*device, tables.dtype, dx_values, tables.offset());
    const Operand tied(*device, tied_values, tables.aligned ? 0 : sizeof(float));
    const Operand dtoken(*device, tables.dtype, std::vector<float>(tables.numel(tokens.vocabulary), poison),
                         tables.offset());
    const Operand dposition(*device, tables.dtype, std::vector<float>(tables.numel(tables.positions), poison),
                            tables.offset());
    const Operand scratch(*device, std::vector<std::byte>(embedding_backward_scratch_bytes(tokens.on(ids))));
    embedding_backward(queue(), {.tokens = tokens.on(ids),
                                 .dx = dx.data(),
                                 .tied_gradient = tied_values.empty() ? nullptr : tied.data<float>(),
                                 .dtoken = tables.on(dtoken, tokens.vocabulary),
                                 .dposition = tables.on(dposition, tables.positions),
                                 .scratch = scratch.data()});
    return {dtoken.values_of(tables.dtype), dposition.values_of(tables.dtype)};
  }
};

template <class Body>
void for_each_case(Body&& body) {
  for (const DType dtype : element_types)
    for (const std::int64_t width : {1, 6, 64})
      for (const std::int64_t sequence : {1, 2, 63, 65, 130}) {
        const Tables tables{width, sequence == 2 ? 5 : sequence, dtype, sequence != 63};
        const Tokens tokens = random_tokens(sequence == 130 ? 1 : 3, sequence, sequence == 65 ? 300 : 7);
        SCOPED_TRACE(
            fmt::format("width {} batch {} sequence {} {}", width, tokens.batch, sequence, name_of(dtype)));
        body(tokens, tables);
      }
}

TEST_F(EmbeddingKernels, a_row_is_the_rounded_sum_of_its_token_and_its_position) {
  for_each_case([&](const Tokens& tokens, const Tables& tables) {
    const std::vector<float> token = rounded(tables.dtype, ordinary(tables.numel(tokens.vocabulary), 1));
    const std::vector<float> position = rounded(tables.dtype, ordinary(tables.numel(tables.positions), 2));
    std::vector<float> expected;
    for (std::int64_t row = 0; row < tokens.rows(); ++row)
      for (std::int64_t i = 0; i < tables.width; ++i)
        expected.push_back(token[static_cast<std::size_t>(tokens.input(row) * tables.width + i)] +
                           position[static_cast<std::size_t>(row % tokens.sequence * tables.width + i)]);
    EXPECT_EQ(embed(tokens, tables, token, position), rounded(tables.dtype, expected));
  });
}

TEST_F(EmbeddingKernels, gradients_of_tables_are_sums_in_the_order_of_rows_rounded_once) {
  for_each_case([&](const Tokens& tokens, const Tables& tables) {
    const std::vector<float> dx = rounded(tables.dtype, ordinary(tables.numel(tokens.rows()), 1));
    const std::vector<float> tied = ordinary(tables.numel(tokens.vocabulary), 2);
    EXPECT_EQ(gradients(tokens, tables, dx, {}), plain_gradients(tokens, tables, dx, {}));
    EXPECT_EQ(gradients(tokens, tables, dx, tied), plain_gradients(tokens, tables, dx, tied));
  });
}

TEST_F(EmbeddingKernels, without_positions_a_row_is_that_of_its_token_and_no_table_of_them_is_touched) {
  const Tokens tokens = random_tokens(2, 33, 7);
  for (const DType dtype : element_types)
    for (const std::int64_t width : {6, 64}) {
      const Tables tables{width, 0, dtype, true};
      const std::vector<float> token = rounded(dtype, ordinary(tables.numel(7), 1));
      const Operand ids(*device, tokens.ids), table(*device, dtype, token);
      const Operand x(*device, dtype, std::vector<float>(tables.numel(tokens.rows()), poison));
      const Operand dtable(*device, dtype, std::vector<float>(token.size(), poison));
      const Operand scratch(*device,
                            std::vector<std::byte>(embedding_backward_scratch_bytes(tokens.on(ids))));
      embedding(queue(), {.tokens = tokens.on(ids),
                          .token_table = tables.on(table, 7),
                          .position_table = {},
                          .x = x.data()});
      embedding_backward(queue(), {.tokens = tokens.on(ids),
                                   .dx = x.data(),
                                   .tied_gradient = nullptr,
                                   .dtoken = tables.on(dtable, 7),
                                   .dposition = {},
                                   .scratch = scratch.data()});
      std::vector<float> expected;
      for (std::int64_t row = 0; row < tokens.rows(); ++row)
        for (std::int64_t i = 0; i < width; ++i)
          expected.push_back(token[static_cast<std::size_t>(tokens.input(row) * width + i)]);
      EXPECT_EQ(x.values_of(dtype), expected);
      // Terms of positions that there are not go to no row that is read.
      EXPECT_EQ(dtable.values_of(dtype),
                plain_gradients(tokens, {width, 33, dtype, true}, expected, {}).token);
    }
}

TEST_F(EmbeddingKernels, tables_with_strides_keep_what_stands_between_rows) {
  const Tokens tokens = random_tokens(2, 9, 5);
  const std::vector<float> dx = ordinary(18 * 4, 1);
  const Operand ids(*device, tokens.ids), gradient(*device, dx);
  const Operand dtoken(*device, std::vector<float>(5 * 6, 42.0f)),
      dposition(*device, std::vector<float>(9 * 4));
  const Operand scratch(*device, std::vector<std::byte>(embedding_backward_scratch_bytes(tokens.on(ids))));
  embedding_backward(
      queue(), {.tokens = tokens.on(ids),
                .dx = gradient.data(),
                .dtoken = {.data = dtoken.data(), .dtype = DType::f32, .rows = 5, .columns = 4, .stride = 6},
                .dposition = matrix(dposition.data(), DType::f32, 9, 4),
                .scratch = scratch.data()});
  const std::vector<float> actual = dtoken.values<float>();
  const Gradients expected = plain_gradients(tokens, {4, 9, DType::f32, true}, dx, {});
  for (std::size_t i = 0; i < actual.size(); ++i)
    EXPECT_EQ(actual[i], i % 6 < 4 ? expected.token[i / 6 * 4 + i % 6] : 42.0f) << i;
  EXPECT_EQ(dposition.values<float>(), expected.position);
}

TEST_F(EmbeddingKernels, ids_outside_the_vocabulary_read_no_row_and_add_to_none) {
  Tokens tokens = random_tokens(2, 70, 7);
  for (const std::int64_t row : {0, 69, 100}) tokens.ids[tokens.index(row)] = row == 69 ? -1 : 7;
  const Tables tables{8, 70, DType::f32, true};
  const std::vector<float> dx = ordinary(tables.numel(tokens.rows()), 1);
  EXPECT_EQ(gradients(tokens, tables, dx, {}), plain_gradients(tokens, tables, dx, {}));
  const std::vector<float> x =
      embed(tokens, tables, ordinary(tables.numel(7), 1), ordinary(tables.numel(70), 2));
  for (std::int64_t row = 0; row < tokens.rows(); ++row)
    EXPECT_EQ(std::isnan(x[static_cast<std::size_t>(row * 8)]), row == 0 || row == 69 || row == 100) << row;
}

}  // namespace
}  // namespace headrace::test

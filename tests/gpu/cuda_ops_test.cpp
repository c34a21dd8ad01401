// Every operation of CudaOps against the same operation of CpuOps; the memory it takes; how it refuses.
#include <cmath>

#include "gpu/gpu_harness.h"
#include "gpu/token_batches.h"
#include "headrace/ops.h"
#include "src/model/null_device.h"

namespace headrace::test {
namespace {

constexpr Bytes machine_memory_bytes = Bytes{48} << 20;

// A device with its memory and operations; every array lies in that memory.
class Machine {
 public:
  Machine(std::unique_ptr<Device> device_in, const OpsFactory& make_ops)
      : device(std::move(device_in)),
        budget("device", machine_memory_bytes),
        memory(device->arena(), budget),
        ops(make_ops(*device, memory)) {}

  std::byte* empty(std::int64_t numel, DType dtype) {
    return memory.persistent(MemoryTag::activations, static_cast<Bytes>(numel) * size_of(dtype));
  }
  template <class T>
  std::byte* put(const std::vector<T>& values) {
    std::byte* const at = memory.persistent(MemoryTag::activations, values.size() * sizeof(T));
    device->copy(Lane::compute, at, values.data(), values.size() * sizeof(T));
    device->synchronize();
    return at;
  }
  // `numel` values that depend on the seed alone.
  std::byte* random(std::int64_t numel, DType dtype, std::uint32_t seed) {
    const std::vector<float> values = ordinary(static_cast<std::uint64_t>(numel), seed);
    return put(stored(dtype, values));
  }
  Matrix random_matrix(std::int64_t rows, std::int64_t columns, DType dtype, std::uint32_t seed) {
    return matrix(random(rows * columns, dtype, seed), dtype, rows, columns);
  }
  Matrix empty_matrix(std::int64_t rows, std::int64_t columns, DType dtype) {
    return matrix(empty(rows * columns, dtype), dtype, rows, columns);
  }
  TokenBatch tokens(const Tokens& host) {
    return {reinterpret_cast<const std::int32_t*>(put(host.ids)), host.batch, host.sequence, host.vocabulary};
  }

  template <class T>
  std::vector<T> read(const void* at, std::int64_t numel) {
    std::vector<T> values(static_cast<std::size_t>(numel));
    device->copy(Lane::compute, values.data(), at, values.size() * sizeof(T));
    device->synchronize();
    return values;
  }
  std::vector<float> read(const void* at, std::int64_t numel, DType dtype) {
    return widened(dtype, read<std::byte>(at, numel * static_cast<std::int64_t>(size_of(dtype))));
  }
  std::vector<float> read(const Matrix& m) { return read(m.data, m.rows * m.columns, m.dtype); }

  std::unique_ptr<Device> device;
  MemoryBudget budget;
  DeviceMemory memory;
  std::unique_ptr<Ops> ops;
};

using Arrays = std::vector<std::vector<float>>;

class CudaOpsTest : public GpuTest {
 protected:
  static Machine gpu() {
    return Machine(make_cuda_device({.memory_bytes = machine_memory_bytes}), make_cuda_ops);
  }
  static Machine cpu() {
    return Machine(make_cpu_device({.memory_bytes = machine_memory_bytes, .compute_threads = 2}),
                   make_cpu_ops);
  }

  // What `run(machine, dtype)` reads back is the same on both devices but for roundings.
  template <class Run>
  void expect_what_the_cpu_computes(Run&& run) {
    for (const DType dtype : element_types) {
      SCOPED_TRACE(name_of(dtype));
      Machine on_gpu = gpu(), on_cpu = cpu();
      const Arrays actual = run(on_gpu, dtype), expected = run(on_cpu, dtype);
      const double error = dtype == DType::f32 ? 2e-5 : 2e-2;
      ASSERT_EQ(actual.size(), expected.size());
      for (std::size_t a = 0; a < actual.size(); ++a) {
        ASSERT_EQ(actual[a].size(), expected[a].size());
        for (std::size_t i = 0; i < actual[a].size(); ++i)
          ASSERT_NEAR(actual[a][i], expected[a][i],
                      error * (1 + std::abs(static_cast<double>(expected[a][i]))))
              << "result " << a << ", element " << i;
      }
    }
  }
};

TEST_F(CudaOpsTest, products) {
  expect_what_the_cpu_computes([](Machine& m, DType dtype) {
    Arrays results;
    const std::int64_t rows = 24, columns = 40, depth = 16;
    for (const Transpose transpose : {Transpose::none, Transpose::a, Transpose::b}) {
      const Matrix a = transpose == Transpose::a ? m.random_matrix(depth, rows, dtype, 1)
                                                 : m.random_matrix(rows, depth, dtype, 1);
      const Matrix b = transpose == Transpose::b ? m.random_matrix(columns, depth, dtype, 2)
                                                 : m.random_matrix(depth, columns, dtype, 2);
      const Matrix c = m.empty_matrix(rows, columns, dtype),
                   sum = m.random_matrix(rows, columns, DType::f32, 3);
      m.ops->matmul(a, b, transpose, m.random(columns, dtype, 4), c);
      m.ops->matmul(a, b, transpose, nullptr, sum, true);
      results.push_back(m.read(c));
      results.push_back(m.read(sum));
    }
    return results;
  });
}

TEST_F(CudaOpsTest, layer_norm_and_its_gradients) {
  expect_what_the_cpu_computes([](Machine& m, DType dtype) {
    const std::int64_t rows = 131, width = 48;
    const Matrix x = m.random_matrix(rows, width, dtype, 1), y = m.empty_matrix(rows, width, dtype);
    const Matrix sum = m.empty_matrix(rows, width, dtype), dx = m.random_matrix(rows, width, dtype, 6);
    const std::byte* const scale = m.random(width, dtype, 2);
    auto* const mean = reinterpret_cast<float*>(m.empty(rows, DType::f32));
    auto* const rstd = reinterpret_cast<float*>(m.empty(rows, DType::f32));
    std::byte *const dscale = m.empty(width, dtype), *const dshift = m.empty(width, dtype);
    m.ops->layer_norm({.x = x,
                       .delta = m.random(rows * width, dtype, 3),
                       .sum = sum.data,
                       .scale = scale,
                       .shift = m.random(width, dtype, 4),
                       .y = y.data,
                       .mean = mean,
                       .rstd = rstd});
    m.ops->layer_norm_backward({.dy = m.random_matrix(rows, width, dtype, 5),
                                .x = sum.data,
                                .scale = scale,
                                .mean = mean,
                                .rstd = rstd,
                                .dx = dx.data,
                                .add_to_dx = true,
                                .dscale = dscale,
                                .dshift = dshift});
    return Arrays{m.read(y),
                  m.read(sum),
                  m.read<float>(mean, rows),
                  m.read<float>(rstd, rows),
                  m.read(dx),
                  m.read(dscale, width, dtype),
                  m.read(dshift, width, dtype)};
  });
}

TEST_F(CudaOpsTest, passes_over_elements_and_sums_of_columns) {
  expect_what_the_cpu_computes([](Machine& m, DType dtype) {
    const std::int64_t rows = 133, width = 40;
    const Matrix x = m.random_matrix(rows, width, dtype, 1), dy = m.random_matrix(rows, width, dtype, 2);
    const Matrix y = m.empty_matrix(rows, width, dtype), again = y, sum = m.empty_matrix(rows, width, dtype);
    const Matrix low = m.empty_matrix(rows, width, dtype), high = m.random_matrix(rows, width, DType::f32, 3);
    std::byte* const sums = m.empty(width, dtype);
    m.ops->gelu(x, y.data);
    Arrays results{m.read(y)};
    m.ops->gelu_backward(x, dy.data, again.data);
    m.ops->add(x, dy.data, sum.data);
    m.ops->column_sums(x, sums);
    m.ops->round_to(reinterpret_cast<const float*>(high.data), low.data, dtype, rows * width);
    for (const Matrix& each : {dy, again, sum, low}) results.push_back(m.read(each));
    results.push_back(m.read(sums, width, dtype));
    return results;
  });
}

TEST_F(CudaOpsTest, rms_norm_and_its_gradients) {
  expect_what_the_cpu_computes([](Machine& m, DType dtype) {
    const std::int64_t rows = 131, width = 48;
    const Matrix x = m.random_matrix(rows, width, dtype, 1), y = m.empty_matrix(rows, width, dtype);
    const Matrix sum = m.empty_matrix(rows, width, dtype), dx = m.random_matrix(rows, width, dtype, 6);
    const std::byte* const scale = m.random(width, dtype, 2);
    auto* const rstd = reinterpret_cast<float*>(m.empty(rows, DType::f32));
    std::byte* const dscale = m.empty(width, dtype);
    m.ops->rms_norm({.x = x,
                     .delta = m.random(rows * width, dtype, 3),
                     .sum = sum.data,
                     .scale = scale,
                     .y = y.data,
                     .rstd = rstd,
                     .epsilon = 0.01f});
    m.ops->rms_norm_backward({.dy = m.random_matrix(rows, width, dtype, 5),
                              .x = sum.data,
                              .scale = scale,
                              .rstd = rstd,
                              .dx = dx.data,
                              .add_to_dx = true,
                              .dscale = dscale});
    return Arrays{m.read(y), m.read(sum), m.read<float>(rstd, rows), m.read(dx),
                  m.read(dscale, width, dtype)};
  });
}

TEST_F(CudaOpsTest, swiglu_and_rotary_positions_and_their_gradients) {
  expect_what_the_cpu_computes([](Machine& m, DType dtype) {
    const AttentionShape shape{
        .batch = 2, .sequence = 70, .heads = 4, .width = 48, .dtype = dtype, .key_heads = 2};
    const std::int64_t rows = shape.batch * shape.sequence;
    const Matrix hidden = m.random_matrix(rows, 96, dtype, 1), dy = m.random_matrix(rows, 48, dtype, 2);
    const Matrix y = m.empty_matrix(rows, 48, dtype),
                 qkv = m.random_matrix(rows, shape.qkv_width(), dtype, 3),
                 dqkv = m.random_matrix(rows, shape.qkv_width(), dtype, 4);
    m.ops->swiglu(hidden, y.data);
    m.ops->swiglu_backward(hidden, dy.data);
    m.ops->rotary(shape, 500.0f, qkv.data, 0);
    m.ops->rotary_backward(shape, 500.0f, dqkv.data);
    return Arrays{m.read(y), m.read(hidden), m.read(dy), m.read(qkv), m.read(dqkv)};
  });
}

TEST_F(CudaOpsTest, attention_and_its_gradients) {
  expect_what_the_cpu_computes([](Machine& m, DType dtype) {
    Arrays results;
    for (const std::int64_t key_heads : {4, 2}) {
      const AttentionShape shape{
          .batch = 2, .sequence = 70, .heads = 4, .width = 48, .dtype = dtype, .key_heads = key_heads};
      const std::int64_t rows = shape.batch * shape.sequence;
      const std::byte* const qkv = m.random(rows * shape.qkv_width(), dtype, 1);
      const Matrix output = m.empty_matrix(rows, shape.width, dtype);
      const Matrix dqkv = m.empty_matrix(rows, shape.qkv_width(), dtype);
      auto* const log_sums = reinterpret_cast<float*>(m.empty(rows * shape.heads, DType::f32));
      m.ops->attention(shape, qkv, output.data, log_sums);
      m.ops->attention_backward(shape, qkv, output.data, m.random(rows * shape.width, dtype, 2), log_sums,
                                dqkv.data);
      for (Matrix each : {output, dqkv}) results.push_back(m.read(each));
      results.push_back(m.read<float>(log_sums, rows * shape.heads));
    }
    return results;
  });
}

TEST_F(CudaOpsTest, cached_attention_and_rotary_positions_behind_others) {
  expect_what_the_cpu_computes([](Machine& m, DType dtype) {
    Arrays results;
    for (const std::int64_t key_heads : {4, 2}) {
      AttentionShape shape{
          .batch = 2, .sequence = 0, .heads = 4, .width = 48, .dtype = dtype, .key_heads = key_heads};
      const std::int64_t numel = shape.batch * 128 * shape.cached_width();
      KeyValueCache cache{
          .rows = m.put(std::vector<std::byte>(static_cast<std::size_t>(numel) * size_of(dtype))),
          .capacity = 128};
      for (const std::int64_t count : {70, 1, 2, 55}) {  // the cache is full then
        shape.sequence = count;
        const Matrix qkv =
            m.random_matrix(2 * count, shape.qkv_width(), dtype, static_cast<std::uint32_t>(count));
        const Matrix output = m.empty_matrix(2 * count, shape.width, dtype);
        m.ops->rotary(shape, 500.0f, qkv.data, cache.used);
        m.ops->cached_attention(shape, qkv.data, cache, output.data);
        results.push_back(m.read(output));
        cache.used += count;
      }
      results.push_back(m.read(cache.rows, numel, dtype));
    }
    return results;
  });
}

TEST_F(CudaOpsTest, embedding_and_its_gradients) {
  expect_what_the_cpu_computes([](Machine& m, DType dtype) {
    const TokenBatch tokens = m.tokens(random_tokens(3, 50, 20));
    const std::int64_t rows = 150, width = 24;
    const Matrix x = m.empty_matrix(rows, width, dtype), dtoken = m.empty_matrix(20, width, dtype);
    const Matrix dposition = m.empty_matrix(64, width, dtype);
    m.ops->embedding(tokens, m.random_matrix(20, width, dtype, 1), m.random_matrix(64, width, dtype, 2),
                     x.data);
    const std::byte* const tied = m.random(20 * width, DType::f32, 3);
    m.ops->embedding_backward(tokens, m.random(rows * width, dtype, 4), reinterpret_cast<const float*>(tied),
                              dtoken, dposition);
    return Arrays{m.read(x), m.read(dtoken), m.read(dposition)};
  });
}

TEST_F(CudaOpsTest, cross_entropy_and_its_mean) {
  expect_what_the_cpu_computes([](Machine& m, DType dtype) {
    const TokenBatch tokens = m.tokens(random_tokens(3, 20, 301));
    const Matrix logits = m.random_matrix(60, 301, DType::f32, 1), dlogits = m.empty_matrix(60, 301, dtype);
    auto* const losses = reinterpret_cast<double*>(m.empty(120, DType::f32));
    for (const std::int64_t first : {0, 25}) {
      const std::int64_t rows = first == 0 ? 25 : 35;
      m.ops->cross_entropy({.logits = reinterpret_cast<const float*>(row_range(logits, first, rows).data),
                            .tokens = tokens,
                            .first_row = first,
                            .rows = rows,
                            .losses = losses,
                            .dlogits = row_range(dlogits, first, rows).data,
                            .dtype = dtype,
                            .gradient_factor = 2.0f});
    }
    float mean = 0;
    m.ops->mean_loss(losses, 60, &mean);
    m.device->synchronize();
    const std::vector<double> each = m.read<double>(losses, 60);
    return Arrays{{mean}, std::vector<float>(each.begin(), each.end()), m.read(dlogits)};
  });
}

// ---- memory

// Everything that takes scratch memory.
void run_operations_with_scratch(Ops& ops) {
  const AttentionShape shape{.batch = 2, .sequence = 33, .heads = 2, .width = 16};
  const TokenBatch tokens{.ids = nullptr, .batch = 2, .sequence = 33, .vocabulary = 50};
  const Matrix x = matrix(nullptr, DType::f32, 66, 16);
  ops.column_sums(x, nullptr);
  ops.layer_norm_backward({.dy = x});
  ops.rms_norm_backward({.dy = x});
  ops.attention_backward(shape, nullptr, nullptr, nullptr, nullptr, nullptr);
  ops.embedding_backward(tokens, nullptr, nullptr, matrix(nullptr, DType::f32, 50, 16),
                         matrix(nullptr, DType::f32, 33, 16));
  float mean = 0;
  ops.mean_loss(nullptr, 66, &mean);
}

TEST_F(CudaOpsTest, a_device_that_executes_nothing_shows_the_scratch_memory_and_it_is_given_back) {
  Machine nothing(std::make_unique<NullDevice>(1), make_cuda_ops);
  const Bytes kept = nothing.budget.current().total();
  EXPECT_GT(kept, Bytes{32} << 20);  // the products' workspace
  run_operations_with_scratch(*nothing.ops);
  EXPECT_EQ(nothing.budget.current().total(), kept);
  const Bytes sorted_tokens = 66 * 16 + 51 * 4;
  EXPECT_GE(nothing.budget.peak()[MemoryTag::workspace], kept + sorted_tokens);
  EXPECT_EQ(nothing.budget.peak()[MemoryTag::workspace], nothing.budget.peak().total());
}

TEST_F(CudaOpsTest, operations_reuse_the_scratch_memory_of_those_before_them) {
  Machine m = gpu();
  const TokenBatch tokens = m.tokens(random_tokens(2, 40, 30));
  const std::byte* const dx = m.random(80 * 16, DType::f32, 1);
  const Matrix x = matrix(const_cast<std::byte*>(dx), DType::f32, 80, 16);
  std::vector<Matrix> dtoken, sums;
  for (int i = 0; i < 2; ++i) {
    dtoken.push_back(m.empty_matrix(30, 16, DType::f32));
    sums.push_back(m.empty_matrix(1, 16, DType::f32));
    m.ops->embedding_backward(tokens, dx, nullptr, dtoken.back(), m.empty_matrix(40, 16, DType::f32));
    m.ops->column_sums(x, sums.back().data);
  }
  EXPECT_EQ(m.read(dtoken[0]), m.read(dtoken[1]));
  EXPECT_EQ(m.read(sums[0]), m.read(sums[1]));
}

// ---- refusals

TEST_F(CudaOpsTest, a_token_outside_the_vocabulary_is_an_error_of_the_next_wait_that_names_it) {
  for (const bool target : {false, true}) {
    Machine m = gpu();
    Tokens host = random_tokens(2, 5, 7);
    host.ids[target ? 5 : 8] = 1234;  // the last target of the first sample, an input of the second
    const TokenBatch tokens = m.tokens(host);
    if (target)
      m.ops->cross_entropy({.logits = reinterpret_cast<const float*>(m.random(70, DType::f32, 1)),
                            .tokens = tokens,
                            .rows = 10,
                            .losses = reinterpret_cast<double*>(m.empty(20, DType::f32))});
    else
      m.ops->embedding(tokens, m.random_matrix(7, 4, DType::f32, 1), m.random_matrix(5, 4, DType::f32, 2),
                       m.empty(40, DType::f32));
    try {
      m.device->synchronize();
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("1234"), std::string::npos) << error.what();
    }
  }
}

TEST_F(CudaOpsTest, heads_wider_than_the_kernels_are_refused_before_anything_runs) {
  Machine nothing(std::make_unique<NullDevice>(1), make_cuda_ops);
  EXPECT_THROW(nothing.ops->attention({1, 4, 1, 257, DType::f32}, nullptr, nullptr, nullptr), UsageError);
  EXPECT_NO_THROW(nothing.ops->attention({1, 4, 1, 256, DType::f32}, nullptr, nullptr, nullptr));
}

}  // namespace
}  // namespace headrace::test

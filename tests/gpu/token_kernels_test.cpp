// Checks and sorts of token ids on a CUDA device.
#include "gpu/token_kernels.h"

#include <algorithm>

#include "gpu/token_batches.h"

namespace headrace::test {
namespace {

class TokenKernels : public GpuTest {
 protected:
  KernelFault fault_in(const Tokens& tokens, std::int64_t first_row, std::int64_t rows, bool targets,
                       const KernelFault& before = {}) {
    const Operand ids(*device, tokens.ids), fault(*device, std::vector<KernelFault>{before});
    check_tokens(queue(), {.tokens = tokens.on(ids),
                           .first_row = first_row,
                           .rows = rows,
                           .targets = targets,
                           .fault = fault.data<KernelFault>()});
    return fault.values<KernelFault>().front();
  }
};

TEST_F(TokenKernels, ids_within_the_vocabulary_are_no_fault) {
  for (const std::int64_t vocabulary : {1, 7}) {
    const Tokens tokens = random_tokens(3, 257, vocabulary);
    EXPECT_EQ(fault_in(tokens, 0, tokens.rows(), false).code, KernelFault::none);
    EXPECT_EQ(fault_in(tokens, 0, tokens.rows(), true).code, KernelFault::none);
  }
}

TEST_F(TokenKernels, the_first_id_outside_the_vocabulary_is_told_with_its_place) {
  for (const std::int32_t wrong : {7, -1, std::numeric_limits<std::int32_t>::min()}) {
    Tokens tokens = random_tokens(3, 257, 7);
    for (const std::int64_t row : {600, 300, 301, 556}) tokens.ids[tokens.index(row)] = wrong;
    const KernelFault fault = fault_in(tokens, 0, tokens.rows(), false);
    EXPECT_EQ(fault.code, KernelFault::token_outside_vocabulary);
    EXPECT_EQ(fault.where, static_cast<long long>(tokens.index(300)));
    EXPECT_EQ(fault.value, wrong);
  }
}

TEST_F(TokenKernels, only_the_rows_asked_for_are_looked_at) {
  Tokens tokens = random_tokens(2, 10, 7);
  tokens.ids[tokens.index(12)] = 99;  // input of row 12, target of row 11
  EXPECT_EQ(fault_in(tokens, 0, 12, false).code, KernelFault::none);
  EXPECT_EQ(fault_in(tokens, 13, 7, false).code, KernelFault::none);
  EXPECT_EQ(fault_in(tokens, 12, 1, false).value, 99);
  EXPECT_EQ(fault_in(tokens, 12, 8, true).code, KernelFault::none);
  EXPECT_EQ(fault_in(tokens, 11, 1, true).where, static_cast<long long>(tokens.index(12)));
}

TEST_F(TokenKernels, the_last_target_of_a_sample_is_looked_at_as_a_target_alone) {
  Tokens tokens = random_tokens(2, 10, 7);
  tokens.ids[10] = 99;
  EXPECT_EQ(fault_in(tokens, 0, tokens.rows(), false).code, KernelFault::none);
  EXPECT_EQ(fault_in(tokens, 0, tokens.rows(), true).where, 10);
}

TEST_F(TokenKernels, a_fault_that_stands_is_kept) {
  Tokens tokens = random_tokens(1, 4, 7);
  tokens.ids[2] = 99;
  KernelFault before;
  before.code = KernelFault::token_outside_vocabulary;
  before.where = 1, before.value = -5;
  const KernelFault fault = fault_in(tokens, 0, 4, false, before);
  EXPECT_EQ(fault.where, 1);
  EXPECT_EQ(fault.value, -5);
}

TEST_F(TokenKernels, rows_are_sorted_by_token_and_stay_in_order_within_one) {
  for (const std::int64_t vocabulary : {1, 7, 3000})
    for (const std::int64_t sequence : {1, 2, 63, 64, 65, 130, 1000}) {
      const Tokens tokens = random_tokens(3, sequence, vocabulary);
      const Operand ids(*device, tokens.ids);
      const Operand scratch(*device, std::vector<std::byte>(rows_by_token_scratch_bytes(tokens.on(ids))));
      const RowsByToken sorted = sort_rows_by_token(queue(), tokens.on(ids), scratch.data());
      const std::vector<std::byte> memory = scratch.values<std::byte>();
      const auto read = [&]<class T>(const T* at, std::int64_t i) {
        T value;
        std::memcpy(&value, memory.data() + (reinterpret_cast<const std::byte*>(at + i) - scratch.data()),
                    sizeof(T));
        return value;
      };
      std::vector<std::int64_t> rows, expected;
      for (std::int64_t v = 0; v < vocabulary; ++v) {
        for (std::int64_t i = read(sorted.first, v); i < read(sorted.first, v + 1); ++i)
          rows.push_back(static_cast<std::uint32_t>(read(sorted.keys, i)));
      }
      for (std::int64_t row = 0; row < tokens.rows(); ++row) expected.push_back(row);
      std::ranges::stable_sort(expected, {}, [&](std::int64_t row) { return tokens.input(row); });
      ASSERT_EQ(rows, expected) << vocabulary << " " << sequence;
    }
}

TEST_F(TokenKernels, rows_with_ids_outside_the_vocabulary_belong_to_no_token) {
  const Tokens tokens{1, 5, 4, {3, -1, 0, 4, 3, 0}};
  const Operand ids(*device, tokens.ids);
  const Operand scratch(*device, std::vector<std::uint64_t>(13));
  ASSERT_EQ(rows_by_token_scratch_bytes(tokens.on(ids)), 100u);
  const RowsByToken sorted = sort_rows_by_token(queue(), tokens.on(ids), scratch.data());
  ASSERT_EQ(reinterpret_cast<const std::byte*>(sorted.first), scratch.data() + 80);
  const std::vector<std::uint64_t> memory = scratch.values<std::uint64_t>();
  EXPECT_EQ(memory[10], 0x0000'0001'0000'0000u);  // first: 0, 1, 1, 1, 3
  EXPECT_EQ(memory[11], 0x0000'0001'0000'0001u);
  EXPECT_EQ(memory[12] & 0xffff'ffffu, 3u);
}

}  // namespace
}  // namespace headrace::test

#include <gtest/gtest.h>

#include "headrace/cpu_pool.h"
#include "unit/cpu_adam/adam_cases.h"

namespace headrace::test {
namespace {

class AdamParallel : public testing::TestWithParam<int> {
 protected:
  void SetUp() override { set_cpu_threads(GetParam()); }
  void TearDown() override { set_cpu_threads(0); }
};
INSTANTIATE_TEST_SUITE_P(Threads, AdamParallel, testing::Values(1, 2, 3), testing::PrintToStringParamName());

TEST_P(AdamParallel, update_has_the_bits_of_one_thread) {
  const OptimizerArguments arguments = {.weight_decay = 0.01, .step = 3};
  for (const std::uint64_t numel : {0, 1, 4096, 32768, 200003}) {
    for (const Low low : {Low::none, Low::bf16, Low::f32}) {
      AdamCase input = adversarial_case(numel, 3);
      input.low = low;
      input.gradient_dtype = low == Low::bf16 ? DType::bf16 : DType::f32;
      input.offset_bytes = 4;
      const AdamResult parallel =
          run(input, [&](const AdamArrays& block) { optimizer_update_parallel(block, arguments); });
      ASSERT_EQ(difference(parallel, expected(input, arguments)), "") << numel << " elements";
    }
  }
}

}  // namespace
}  // namespace headrace::test

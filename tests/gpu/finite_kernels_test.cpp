// Where an array on a CUDA device stops being finite: the answer of the CPU.
#include <limits>

#include "headrace/finite.h"
#include "headrace/kernels.h"
#include "tests/gpu/gpu_harness.h"

namespace headrace::test {
namespace {

class FiniteKernels : public GpuTest {};

TEST_F(FiniteKernels, the_first_element_that_is_infinite_or_nan_is_found_and_an_earlier_one_kept) {
  const auto kernels = make_cuda_kernels(*device);
  constexpr float infinite = std::numeric_limits<float>::infinity(),
                  nan = std::numeric_limits<float>::quiet_NaN();
  for (const DType dtype : element_types)
    for (const std::uint64_t numel : {0, 1, 511, 512, 5001})
      for (const std::size_t offset : {0, 1}) {
        const auto expect = [&](const std::vector<float>& values, std::uint64_t before,
                                std::uint64_t expected) {
          const Operand in(*device, dtype, values, offset * size_of(dtype));
          const Operand first(*device, std::vector<std::uint64_t>{before});
          kernels->first_non_finite(Lane::communicate, in.data(), dtype, numel, first.data<std::uint64_t>());
          EXPECT_EQ(first.values<std::uint64_t>()[0], expected) << numel << " of " << name_of(dtype);
        };
        std::vector<float> values(numel, 60000.0f);
        expect(values, all_finite, all_finite);
        if (numel == 0) continue;
        values.back() = -infinite;
        expect(values, all_finite, numel - 1);
        values[numel / 2] = nan;
        expect(values, all_finite, numel / 2);
        expect(values, 0, 0);
      }
}

}  // namespace
}  // namespace headrace::test

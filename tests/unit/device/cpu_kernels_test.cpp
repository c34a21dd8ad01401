// The CPU device's kernels against the serial kernels of optimizer_update.h: same bits, in lane order,
// whatever the split over threads.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#include "headrace/cpu_pool.h"
#include "headrace/errors.h"
#include "headrace/finite.h"
#include "headrace/kernels.h"
#include "tests/support/adam_arrays.h"
#include "tests/support/refused_updates.h"

namespace headrace {
namespace {

constexpr std::uint64_t tested_numels[] = {0, 1, 4096, 65536, 65537, 3 * 65536 + 4099};

std::vector<float> values(std::uint64_t numel, std::uint32_t seed) {
  std::vector<float> result(numel);
  std::uint32_t state = seed * 2654435761u + 1;
  for (float& x : result) {
    state = state * 1664525u + 1013904223u;
    x = static_cast<float>(static_cast<std::int32_t>(state)) * 0x1p-31f;
  }
  return result;
}

std::vector<bf16> halves(std::uint64_t numel, std::uint32_t seed) {
  std::vector<bf16> result;
  for (const float x : values(numel, seed)) result.push_back(to_bf16(x));
  return result;
}

template <class T>
bool equal_bytes(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

class CpuKernelsTest : public testing::TestWithParam<int> {
 protected:
  void SetUp() override { set_cpu_threads(GetParam()); }
  void TearDown() override {
    device->synchronize();
    set_cpu_threads(0);
  }
  std::unique_ptr<Device> device = make_cpu_device({.memory_bytes = 1 << 20});
  std::unique_ptr<DeviceKernels> kernels = make_cpu_kernels(*device);
};
INSTANTIATE_TEST_SUITE_P(Threads, CpuKernelsTest, testing::Values(1, 2, 3),
                         testing::PrintToStringParamName());

TEST_P(CpuKernelsTest, the_first_element_that_is_not_finite_is_found_and_an_earlier_one_kept) {
  constexpr float infinite = std::numeric_limits<float>::infinity(),
                  nan = std::numeric_limits<float>::quiet_NaN();
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const std::uint64_t numel : tested_numels) {
      std::vector<std::byte> array(numel * size_of(dtype));
      const auto found = [&](std::uint64_t before) {
        kernels->first_non_finite(Lane::compute, array.data(), dtype, numel, &before);
        device->synchronize();
        return before;
      };
      for (std::uint64_t i = 0; i < numel; ++i) set_element(array.data(), i, dtype, -60000.0f);
      EXPECT_EQ(found(all_finite), all_finite);
      if (numel == 0) continue;
      set_element(array.data(), numel - 1, dtype, nan);
      EXPECT_EQ(found(all_finite), numel - 1) << name_of(dtype);
      set_element(array.data(), numel / 2, dtype, -infinite);
      EXPECT_EQ(found(all_finite), numel / 2) << name_of(dtype);
      EXPECT_EQ(found(0), 0u);
    }
}

TEST_P(CpuKernelsTest, sums_have_the_bits_of_the_serial_kernel) {
  for (const std::uint64_t numel : tested_numels) {
    const std::vector<bf16> a = halves(numel, 1), b = halves(numel, 2), c = halves(numel, 3);
    std::vector<float> sum = values(numel, 4), wanted = sum;
    const std::vector<const void*> slices = {a.data(), b.data(), c.data()};
    kernels->sum_slices(Lane::compute, slices, DType::bf16, numel, sum.data(), true);
    device->synchronize();
    sum_slices(slices, DType::bf16, numel, wanted.data(), true);
    EXPECT_TRUE(equal_bytes(sum, wanted)) << numel;
  }
}

TEST_P(CpuKernelsTest, the_array_of_slices_is_copied_by_the_call) {
  const std::vector<float> a = values(70000, 1);
  std::vector<float> sum(a.size());
  std::vector<const void*> slices = {a.data()};
  kernels->sum_slices(Lane::compute, slices, DType::f32, a.size(), sum.data(), false);
  slices[0] = nullptr;
  device->synchronize();
  EXPECT_TRUE(equal_bytes(sum, a));
}

TEST_P(CpuKernelsTest, norms_have_the_bits_of_the_serial_kernel) {
  for (const std::uint64_t numel : tested_numels) {
    const std::vector<float> sum = values(numel, 5);
    std::vector<bf16> rounded(numel), wanted_rounded(numel);
    std::vector<double> partials((numel + norm_chunk_numel - 1) / norm_chunk_numel), wanted = partials;
    kernels->round_and_norm(Lane::communicate, sum.data(), rounded.data(), DType::bf16, numel,
                            partials.data());
    device->synchronize();
    round_and_norm(sum.data(), wanted_rounded.data(), DType::bf16, numel, wanted.data());
    EXPECT_TRUE(equal_bytes(rounded, wanted_rounded) && equal_bytes(partials, wanted)) << numel;
  }
}

// At the call, as on every device, not when the lane is waited for.
TEST_P(CpuKernelsTest, an_update_of_states_that_are_not_those_of_the_arguments_is_refused) {
  for (const auto& [span, arguments] : test::refused_updates())
    EXPECT_THROW(kernels->update(Lane::compute, span, arguments), UsageError);
}

TEST_P(CpuKernelsTest, update_and_rounding_run_in_lane_order) {
  const std::uint64_t numel = 200003;
  std::vector<float> master = values(numel, 6), exp_avg = values(numel, 7), exp_avg_sq(numel, 0.25f);
  const std::vector<float> gradient = values(numel, 8);
  std::vector<float> wanted_master = master, wanted_exp_avg = exp_avg, wanted_exp_avg_sq = exp_avg_sq;
  std::vector<bf16> low(numel), wanted_low(numel);
  const OptimizerArguments arguments = {.weight_decay = 0.1, .step = 2};
  kernels->update(Lane::compute,
                  test::AdamArrays{.master = master.data(),
                                   .exp_avg = exp_avg.data(),
                                   .exp_avg_sq = exp_avg_sq.data(),
                                   .gradient = gradient.data(),
                                   .numel = numel},
                  arguments);
  kernels->round_to(Lane::compute, master.data(), low.data(), DType::bf16, numel);
  device->synchronize();

  optimizer_update(test::AdamArrays{.master = wanted_master.data(),
                                    .exp_avg = wanted_exp_avg.data(),
                                    .exp_avg_sq = wanted_exp_avg_sq.data(),
                                    .gradient = gradient.data(),
                                    .low_precision = wanted_low.data(),
                                    .numel = numel},
                   arguments);
  EXPECT_TRUE(equal_bytes(master, wanted_master) && equal_bytes(exp_avg, wanted_exp_avg));
  EXPECT_TRUE(equal_bytes(exp_avg_sq, wanted_exp_avg_sq) && equal_bytes(low, wanted_low));
}

}  // namespace
}  // namespace headrace

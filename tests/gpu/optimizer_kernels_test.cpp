// DeviceKernels on a CUDA device: the bits of cpu_adam.
#include "gpu/optimizer_kernels.h"

#include "headrace/kernels.h"
#include "tests/gpu/gpu_harness.h"

namespace headrace::test {
namespace {

constexpr std::uint64_t numels[] = {0, 1, 3, 31, 4095, 4096, 4097, 100003};

class OptimizerKernels : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (device) kernels = make_cuda_kernels(*device);
  }
  std::unique_ptr<DeviceKernels> kernels;
};

// ---- Sums over ranks

struct SumCase {
  DType dtype;
  std::size_t slices;
  std::uint64_t numel;
  bool accumulate, aligned;
};

void check_sum(Device& device, DeviceKernels& kernels, const SumCase& c) {
  std::vector<Operand> slices;
  std::vector<std::vector<float>> wide;
  std::vector<std::vector<bf16>> narrow;
  std::vector<const void*> on_device, on_host;
  for (std::size_t r = 0; r < c.slices; ++r) {
    wide.push_back(adversarial(c.numel, static_cast<std::uint32_t>(r + 100 * c.numel)));
    narrow.push_back(as_bf16(wide.back()));
    slices.emplace_back(device, c.dtype, wide.back(), c.aligned ? 0 : (r % 4 + 1) * size_of(c.dtype));
  }
  for (std::size_t r = 0; r < c.slices; ++r) {
    on_device.push_back(slices[r].data());
    on_host.push_back(c.dtype == DType::f32 ? static_cast<const void*>(wide[r].data()) : narrow[r].data());
  }
  std::vector<float> wanted = adversarial(c.numel, 999);
  const Operand sum(device, wanted, c.aligned ? 0 : 12);
  kernels.sum_slices(Lane::communicate, on_device, c.dtype, c.numel, sum.data<float>(), c.accumulate);
  headrace::sum_slices(on_host, c.dtype, c.numel, wanted.data(), c.accumulate);
  ASSERT_EQ(first_difference(sum.values<float>(), wanted), c.numel)
      << c.slices << " slices of " << c.numel << " of " << name_of(c.dtype) << ", accumulate " << c.accumulate
      << ", aligned " << c.aligned;
}

TEST_F(OptimizerKernels, slices_are_summed_in_order_with_the_bits_of_the_cpu) {
  for (const DType dtype : element_types)
    for (const std::size_t slices : {0, 1, 2, 5})
      for (const std::uint64_t numel : numels)
        for (const bool accumulate : {false, true})
          for (const bool aligned : {false, true})
            if (numel < 10000 || slices == 2)  // for time
              check_sum(*device, *kernels, {dtype, slices, numel, accumulate, aligned});
}

TEST_F(OptimizerKernels, slices_of_many_ranks_are_summed_and_of_more_refused) {
  for (const DType dtype : element_types)
    for (const std::size_t slices : {32, 33, 500})
      check_sum(*device, *kernels, {dtype, slices, 67, true, true});
  const std::vector<const void*> too_many(501, nullptr);
  EXPECT_THROW(kernels->sum_slices(Lane::compute, too_many, DType::f32, 0, nullptr, false), UsageError);
}

TEST_F(OptimizerKernels, a_sum_may_be_its_own_first_slice) {
  const std::vector<float> a = ordinary(1025, 1), b = ordinary(1025, 2);
  const Operand first(*device, a), second(*device, b);
  const void* slices[] = {first.data(), second.data()};
  kernels->sum_slices(Lane::compute, slices, DType::f32, 1025, first.data<float>(), false);
  std::vector<float> wanted(1025);
  for (std::size_t i = 0; i < wanted.size(); ++i) wanted[i] = a[i] + b[i];
  EXPECT_EQ(first.values<float>(), wanted);
}

// ---- Rounding and norms

// On the device and on the CPU; in place when the type is fp32 and `in_place`.
void check_norm(Device& device, DeviceKernels& kernels, DType dtype, const std::vector<float>& values,
                std::size_t offset, bool in_place = false) {
  const std::uint64_t numel = values.size();
  const std::vector<double> unwritten((numel + norm_chunk_numel - 1) / norm_chunk_numel, -1.0);
  const Operand sum(device, values, offset * sizeof(float));
  const Operand low(device, dtype, std::vector<float>(numel), offset * size_of(dtype));
  const Operand partials(device, unwritten, 8);
  const Operand& result = in_place ? sum : low;
  kernels.round_and_norm(Lane::compute, sum.data<float>(), result.data(), dtype, numel,
                         partials.data<double>());

  std::vector<double> wanted_partials = unwritten;
  std::vector<bf16> narrow(numel);
  std::vector<float> wide(numel);
  void* host = dtype == DType::f32 ? static_cast<void*>(wide.data()) : narrow.data();
  headrace::round_and_norm(values.data(), host, dtype, numel, wanted_partials.data());
  ASSERT_EQ(first_difference(result.values_of(dtype), rounded(dtype, values)), numel)
      << numel << " elements of " << name_of(dtype) << ", offset " << offset;
  ASSERT_EQ(first_difference(partials.values<double>(), wanted_partials), wanted_partials.size())
      << numel << " elements of " << name_of(dtype) << ", offset " << offset;
}

TEST_F(OptimizerKernels, norm_partials_have_the_bits_of_the_cpu) {
  for (const DType dtype : element_types) {
    for (const std::uint64_t numel : numels) {
      for (const std::size_t offset : {0, 1}) {
        check_norm(*device, *kernels, dtype, ordinary(numel, 17), offset);
        check_norm(*device, *kernels, dtype, adversarial(numel, 19), offset);
      }
    }
    check_norm(*device, *kernels, dtype, ordinary(3 * norm_chunk_numel + 77, 20), 0);
  }
  check_norm(*device, *kernels, DType::f32, ordinary(4100, 3), 0, true);
}

TEST_F(OptimizerKernels, non_finite_values_reach_the_partial_of_their_chunk_alone) {
  for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    std::vector<float> values = ordinary(3 * norm_chunk_numel, 1);
    values[norm_chunk_numel + 5] = bad;
    const Operand sum(*device, values), partials(*device, std::vector<double>(3));
    kernels->round_and_norm(Lane::compute, sum.data<float>(), sum.data(), DType::f32, values.size(),
                            partials.data<double>());
    const std::vector<double> result = partials.values<double>();
    EXPECT_TRUE(std::isfinite(result[0]) && !std::isfinite(result[1]) && std::isfinite(result[2]));
  }
}

// Every sign, exponent and upper mantissa, with the lower halves where rounding to nearest even decides. More
// elements than a grid has threads.
TEST_F(OptimizerKernels, rounding_has_the_bits_of_to_bf16_over_all_upper_halves) {
  std::vector<float> values;
  for (std::uint32_t upper = 0; upper < 0x10000; ++upper)
    for (const std::uint32_t lower :
         {0x0000u, 0x0001u, 0x0080u, 0x00ffu, 0x3fffu, 0x4000u, 0x4001u, 0x7f00u, 0x7ffeu, 0x7fffu, 0x8000u,
          0x8001u, 0x80ffu, 0xbfffu, 0xc000u, 0xc001u, 0xff00u, 0xffffu})
      values.push_back(std::bit_cast<float>(upper << 16 | lower));
  for (const std::size_t offset : {0, 2}) {
    const Operand high(*device, values), low(*device, std::vector<bf16>(values.size()), offset);
    kernels->round_to(Lane::upload, high.data<float>(), low.data(), DType::bf16, values.size());
    const std::vector<bf16> result = low.values<bf16>();
    for (std::size_t i = 0; i < values.size(); ++i)
      ASSERT_EQ(result[i].bits, to_bf16(values[i]).bits) << std::hexfloat << values[i];
  }
}

TEST_F(OptimizerKernels, rounding_to_fp32_copies) {
  for (const std::uint64_t numel : numels) {
    const std::vector<float> values = adversarial(numel, 8);
    const Operand high(*device, values, 4), low(*device, std::vector<float>(numel));
    kernels->round_to(Lane::compute, high.data<float>(), low.data(), DType::f32, numel);
    EXPECT_EQ(first_difference(low.values<float>(), values), numel);
  }
}

}  // namespace
}  // namespace headrace::test

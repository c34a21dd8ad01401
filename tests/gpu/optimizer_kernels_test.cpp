// DeviceKernels on a CUDA device: the bits of cpu_adam.
#include "gpu/optimizer_kernels.h"

#include "headrace/kernels.h"
#include "tests/gpu/gpu_harness.h"
#include "unit/cpu_adam/adam_cases.h"

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

// ---- Adam

AdamResult on_the_cpu(const AdamCase& input, const OptimizerArguments& arguments) {
  return run(input, [&](const AdamArrays& block) { optimizer_update(block, arguments); });
}

// Every array on a border of 16 bytes, or each somewhere else between two of them.
AdamResult on_the_gpu(Device& device, DeviceKernels& kernels, const AdamCase& input, bool aligned,
                      const OptimizerArguments& arguments) {
  const auto offset = [&](int array, DType dtype) {
    return aligned ? 0 : static_cast<std::size_t>(array) * size_of(dtype);
  };
  const DType low_dtype = input.low == Low::bf16 ? DType::bf16 : DType::f32;
  const std::vector<float> low_before(input.low == Low::none ? 0 : input.master.size());
  const Operand master(device, input.master, offset(1, DType::f32));
  const Operand exp_avg(device, input.exp_avg, offset(2, DType::f32));
  const Operand exp_avg_sq(device, input.exp_avg_sq, offset(3, DType::f32));
  const Operand gradient(device, input.gradient_dtype, input.gradient, offset(3, input.gradient_dtype));
  const Operand low(device, low_dtype, low_before, offset(1, low_dtype));
  kernels.update(Lane::compute,
                 AdamArrays{.master = master.data<float>(),
                            .exp_avg = exp_avg.data<float>(),
                            .exp_avg_sq = exp_avg_sq.data<float>(),
                            .gradient = gradient.data(),
                            .gradient_dtype = input.gradient_dtype,
                            .low_precision = input.low == Low::none ? nullptr : low.data(),
                            .low_precision_dtype = low_dtype,
                            .numel = input.master.size()},
                 arguments);
  AdamResult result{master.values<float>(), exp_avg.values<float>(), exp_avg_sq.values<float>(),
                    low.values_of(low_dtype), true};
  result.low.resize(input.master.size());
  return result;
}

TEST_F(OptimizerKernels, an_update_has_the_bits_of_the_cpu_for_every_numel_dtype_decay_and_alignment) {
  for (const std::uint64_t numel : numels) {
    for (const DType gradient_dtype : element_types) {
      for (const Low low : {Low::none, Low::bf16, Low::f32}) {
        for (const bool decoupled : {false, true}) {
          if (numel > 10000 && low != Low::bf16) continue;  // for time
          AdamCase input = adversarial_case(numel, static_cast<std::uint32_t>(numel));
          input.gradient_dtype = gradient_dtype;
          input.low = low;
          const OptimizerArguments arguments = {
              .weight_decay = 0.1, .decoupled = decoupled, .step = 3, .gradient_scale = 0.37f};
          const AdamResult wanted = on_the_cpu(input, arguments);
          for (const bool aligned : {true, false})
            ASSERT_EQ(difference(on_the_gpu(*device, *kernels, input, aligned, arguments), wanted), "")
                << numel << " elements, gradient " << name_of(gradient_dtype) << ", low "
                << static_cast<int>(low) << ", decoupled " << decoupled << ", aligned " << aligned;
        }
      }
    }
  }
}

TEST_F(OptimizerKernels, ten_updates_of_ordinary_values_have_the_bits_of_the_cpu) {
  AdamCase cpu = ordinary_case(4097, 5), gpu = cpu;
  for (std::uint64_t step = 1; step <= 10; ++step) {
    const OptimizerArguments arguments = {.weight_decay = 0.01, .step = step};
    const AdamResult wanted = on_the_cpu(cpu, arguments);
    const AdamResult result = on_the_gpu(*device, *kernels, gpu, step % 2 == 0, arguments);
    ASSERT_EQ(difference(result, wanted), "") << "step " << step;
    cpu.master = wanted.master, cpu.exp_avg = wanted.exp_avg, cpu.exp_avg_sq = wanted.exp_avg_sq;
    gpu.master = result.master, gpu.exp_avg = result.exp_avg, gpu.exp_avg_sq = result.exp_avg_sq;
  }
}

// A wrong last bit of sqrt(v) / sqrt(1 - beta2^t) shows in the weight.
TEST_F(OptimizerKernels, roots_and_quotients_are_correctly_rounded_over_their_range) {
  AdamCase input = ordinary_case(1 << 15, 41);
  std::mt19937 random(43);
  for (float& v : input.exp_avg_sq)
    v = std::bit_cast<float>(static_cast<std::uint32_t>(random() % 0x7f800001u));  // 0 to infinity
  input.master.assign(input.master.size(), 0.0f);
  input.exp_avg.assign(input.master.size(), 1.0f);
  input.gradient.assign(input.master.size(), 0.0f);
  for (const double beta2 : {0.0, 0.95, 0.9999999}) {
    const OptimizerArguments arguments = {.learning_rate = 1.0, .beta2 = beta2, .epsilon = 0.0, .step = 2};
    ASSERT_EQ(difference(on_the_gpu(*device, *kernels, input, true, arguments), expected(input, arguments)),
              "")
        << "beta2 " << beta2;
  }
}

TEST_F(OptimizerKernels, arguments_without_meaning_are_refused) {
  EXPECT_THROW(kernels->update(Lane::compute, {}, {.beta1 = 1.0}), UsageError);
}

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

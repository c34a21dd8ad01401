// DeviceKernels::update on a CUDA device: the bits of the CPU for every optimizer, format of states and type.
#include "gpu/update_kernels.h"

#include <optional>

#include "headrace/kernels.h"
#include "tests/gpu/gpu_harness.h"
#include "tests/support/refused_updates.h"

namespace headrace::test {
namespace {

constexpr std::uint64_t numels[] = {0, 1, 3, 31, 63, 64, 65, 4096, 4097};
constexpr MomentDType moment_types[] = {MomentDType::f32, MomentDType::bf16, MomentDType::int8};
constexpr std::optional<DType> low_types[] = {std::nullopt, DType::f32, DType::bf16, DType::f16};

struct Case {
  OptimizerArguments arguments;
  MasterDType master = MasterDType::f32;
  MomentDType moments = MomentDType::f32;
  DType parameters = DType::f32;  // of a master that is none
  DType gradient = DType::f32;
  std::optional<DType> low;
  std::uint64_t numel = 0;
  std::uint64_t first_element = 0;
  bool aligned = true;
};

// The arrays of an update in host memory.
struct Arrays {
  std::vector<std::byte> master, gradient, low, values[most_moments];
  std::vector<float> scales[most_moments];
};

StateFormat format_of(const Case& c) {
  return headrace::format_of(c.arguments, c.master, c.moments);
}

DType master_type(const Case& c) {
  if (c.master == MasterDType::none) return c.parameters;
  return c.master == MasterDType::bf16 ? DType::bf16 : DType::f32;
}

std::vector<float> inputs(const Case& c, std::uint32_t seed, bool positive = false) {
  std::vector<float> values = seed % 2 == 0 ? adversarial(c.numel, seed) : ordinary(c.numel, seed);
  if (positive)
    for (float& x : values) x = std::abs(x);
  return values;
}

Arrays make_arrays(const Case& c, std::uint32_t seed) {
  Arrays a{.master = stored(master_type(c), inputs(c, seed)),
           .gradient = stored(c.gradient, inputs(c, seed + 2)),
           .low = std::vector<std::byte>(c.low ? c.numel * size_of(*c.low) : 0),
           .values = {},
           .scales = {}};
  const StateFormat format = format_of(c);
  std::mt19937 random(seed);
  for (int m = 0; m < moment_count(format); ++m) {
    const std::vector<float> values =
        inputs(c, seed + 4 + 2 * static_cast<std::uint32_t>(m), moment_of(format, m).squared);
    if (c.moments != MomentDType::int8) {
      a.values[m] = stored(c.moments == MomentDType::f32 ? DType::f32 : DType::bf16, values);
      continue;
    }
    for (std::uint64_t i = 0; i < c.numel; ++i) a.values[m].push_back(static_cast<std::byte>(random()));
    for (std::uint64_t i = 0; i < c.numel; i += quantised_block_numel)
      a.scales[m].push_back(std::abs(values[i]));
  }
  return a;
}

// With addresses(array, index, bytes of an element) in the place of each array.
template <class Address>
UpdateSpan span_of(const Case& c, Arrays& a, const Address& address) {
  UpdateSpan span;
  span.format = format_of(c);
  span.parameter_dtype = c.parameters;
  span.state.master = address(a.master);
  for (std::size_t m = 0; m < most_moments; ++m)
    span.state.moments[m] = {address(a.values[m]), reinterpret_cast<float*>(address(a.scales[m]))};
  span.gradient = address(a.gradient);
  span.gradient_dtype = c.gradient;
  if (c.low) span.low_precision = address(a.low), span.low_precision_dtype = *c.low;
  span.numel = c.numel;
  span.first_element = c.first_element;
  return span;
}

Arrays on_the_cpu(const Case& c, Arrays arrays) {
  const auto address = [](auto& array) { return reinterpret_cast<std::byte*>(array.data()); };
  optimizer_update(span_of(c, arrays, address), c.arguments, Isa::scalar);
  return arrays;
}

class UpdateKernels : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (device) kernels = make_cuda_kernels(*device);
  }

  // Every array on a border of 16 bytes, or one element further.
  Arrays on_the_gpu(const Case& c, Arrays arrays) {
    std::vector<std::unique_ptr<Operand>> operands;
    std::vector<std::function<void()>> fetch;
    const auto address = [&](auto& array) {
      using T = typename std::remove_reference_t<decltype(array)>::value_type;
      const std::size_t element = std::max<std::size_t>(sizeof(T), c.numel > 0 ? array.size() / c.numel : 1);
      operands.push_back(std::make_unique<Operand>(*device, array, c.aligned ? 0 : element));
      fetch.emplace_back(
          [&array, operand = operands.back().get()] { array = operand->template values<T>(); });
      return operands.back()->data();
    };
    kernels->update(Lane::compute, span_of(c, arrays, address), c.arguments);
    for (const auto& take : fetch) take();
    return arrays;
  }

  void expect_equal(const Case& c, std::uint32_t seed) {
    const Arrays before = make_arrays(c, seed);
    const Arrays cpu = on_the_cpu(c, before), gpu = on_the_gpu(c, before);
    const auto same = [&](const char* name, DType dtype, const std::vector<std::byte>& x,
                          const std::vector<std::byte>& y) {
      const std::vector<float> a = widened(dtype, x), b = widened(dtype, y);
      const std::size_t at = first_difference(a, b);
      EXPECT_EQ(at, a.size()) << name << "[" << at << "] is " << b[at] << ", on the cpu " << a[at];
    };
    same("master", master_type(c), cpu.master, gpu.master);
    if (c.low) same("low", *c.low, cpu.low, gpu.low);
    for (int m = 0; m < most_moments; ++m) {
      if (c.moments != MomentDType::int8)
        same("moment", c.moments == MomentDType::f32 ? DType::f32 : DType::bf16, cpu.values[m],
             gpu.values[m]);
      else
        EXPECT_EQ(cpu.values[m], gpu.values[m]);
      EXPECT_EQ(first_difference(cpu.scales[m], gpu.scales[m]), cpu.scales[m].size())
          << "scale of moment " << m;
    }
  }

  std::unique_ptr<DeviceKernels> kernels;
};

std::vector<OptimizerArguments> every_optimizer() {
  const OptimizerArguments common{.weight_decay = 0.1, .step = 3, .gradient_scale = 0.37f, .seed = 9};
  std::vector<OptimizerArguments> all(9, common);
  all[1].decoupled = false;
  all[2].amsgrad = true;
  all[3].kind = OptimizerKind::adagrad, all[3].rate_decay = 0.01;
  all[4].kind = OptimizerKind::lion;
  all[5].kind = OptimizerKind::sgd;
  all[6].kind = OptimizerKind::sgd, all[6].momentum = 0.9, all[6].dampening = 0.5;
  all[7].kind = OptimizerKind::sgd, all[7].momentum = 0.9, all[7].nesterov = true;
  all[8].maximize = true, all[8].weight_decay = 0;
  return all;
}

TEST_F(UpdateKernels, have_the_bits_of_the_cpu_for_every_optimizer_and_format_of_states) {
  std::uint32_t seed = 0;
  for (const OptimizerArguments& arguments : every_optimizer())
    for (const MomentDType moments : moment_types)
      for (const MasterDType master : {MasterDType::f32, MasterDType::bf16, MasterDType::none})
        for (const std::uint64_t numel : {std::uint64_t{65}, std::uint64_t{4097}}) {
          Case c{.arguments = arguments,
                 .master = master,
                 .moments = moments,
                 .low = std::nullopt,
                 .numel = numel};
          if (master != MasterDType::none) c.low = DType::bf16;
          c.parameters = seed % 2 == 0 ? DType::bf16 : DType::f32;
          c.gradient = DType::bf16;
          c.aligned = seed % 3 != 0;
          SCOPED_TRACE(testing::Message()
                       << name_of(arguments.kind) << ", master " << name_of(master) << ", moments "
                       << name_of(moments) << ", " << numel << " elements, seed " << seed);
          expect_equal(c, seed++);
          if (HasFailure()) return;
        }
}

TEST_F(UpdateKernels, have_the_bits_of_the_cpu_for_every_numel_type_and_alignment) {
  std::uint32_t seed = 0;
  for (const std::uint64_t numel : numels)
    for (const DType gradient : element_types)
      for (const std::optional<DType> low : low_types)
        for (const MomentDType moments : moment_types)
          for (const bool aligned : {true, false}) {
            const Case c{.arguments = {.weight_decay = 0.01, .step = 2},
                         .moments = moments,
                         .gradient = gradient,
                         .low = low,
                         .numel = numel,
                         .aligned = aligned};
            SCOPED_TRACE(testing::Message() << numel << " elements, gradient " << name_of(gradient)
                                            << ", low " << (low ? name_of(*low) : "none") << ", moments "
                                            << name_of(moments) << ", aligned " << aligned);
            expect_equal(c, seed++);
            if (HasFailure()) return;
          }
}

TEST_F(UpdateKernels, draw_other_random_bits_past_each_four_billion_elements) {
  for (const MomentDType moments : {MomentDType::bf16, MomentDType::int8})
    expect_equal({.arguments = {.step = 5, .seed = 3},
                  .master = MasterDType::bf16,
                  .moments = moments,
                  .low = DType::bf16,
                  .numel = 200,
                  .first_element = (std::uint64_t{3} << 32) - 64},
                 1);
}

TEST_F(UpdateKernels, keep_an_infinite_moment_as_the_largest_of_its_block_whose_others_stay_finite) {
  constexpr std::uint64_t numel = quantised_block_numel, odd_one = 5;
  for (const OptimizerArguments& arguments : every_optimizer()) {
    const Case c{.arguments = arguments, .moments = MomentDType::int8, .low = std::nullopt, .numel = numel};
    const Arrays ordinary = make_arrays(c, 1);
    Arrays a = ordinary;
    const float infinity = std::numeric_limits<float>::infinity();
    set_element(a.gradient.data(), odd_one, DType::f32, infinity);
    a = on_the_gpu(c, a);
    for (std::size_t m = 0; m < static_cast<std::size_t>(moment_count(format_of(c))); ++m) {
      const bool squared = moment_of(format_of(c), static_cast<int>(m)).squared;
      EXPECT_TRUE(std::isfinite(squared ? a.scales[m][0] * a.scales[m][0] : a.scales[m][0]));
      const unsigned largest = squared ? 255 : 127;
      EXPECT_EQ(static_cast<unsigned>(a.values[m][odd_one]) & largest, largest);
    }
    a.gradient = ordinary.gradient;
    const std::vector<float> master = widened(DType::f32, on_the_gpu(c, a).master);
    for (std::uint64_t i = 0; i < numel; ++i)
      EXPECT_TRUE(std::isfinite(master[i]) || i == odd_one) << name_of(arguments.kind) << ", element " << i;
  }
}

// A wrong last bit of sqrt(v) / sqrt(1 - beta2^t) shows in the weight.
TEST_F(UpdateKernels, take_roots_and_quotients_correctly_rounded_over_their_range) {
  constexpr std::uint64_t numel = 1 << 15;
  std::mt19937 random(43);
  std::vector<float> squares(numel);
  for (float& v : squares)
    v = std::bit_cast<float>(static_cast<std::uint32_t>(random() % 0x7f800001u));  // 0 to infinity
  for (const double beta2 : {0.0, 0.95, 0.9999999}) {
    const Case c{.arguments = {.learning_rate = 1.0, .beta2 = beta2, .epsilon = 0.0, .step = 2},
                 .low = std::nullopt,
                 .numel = numel};
    Arrays before = make_arrays(c, 1);
    before.master = before.gradient = stored(DType::f32, std::vector<float>(numel));
    before.values[0] = stored(DType::f32, std::vector<float>(numel, 1.0f));
    before.values[1] = stored(DType::f32, squares);
    const auto cpu = widened(DType::f32, on_the_cpu(c, before).master);
    const auto gpu = widened(DType::f32, on_the_gpu(c, before).master);
    EXPECT_EQ(first_difference(cpu, gpu), numel) << "beta2 " << beta2;
  }
}

TEST_F(UpdateKernels, refuse_states_and_arguments_that_do_not_belong_together_or_have_no_meaning) {
  for (const auto& [span, arguments] : refused_updates())
    EXPECT_THROW(kernels->update(Lane::compute, span, arguments), UsageError);
  UpdateSpan bf16_master;
  bf16_master.format.master = MasterDType::none;
  bf16_master.parameter_dtype = DType::bf16;
  EXPECT_NO_THROW(kernels->update(Lane::compute, bf16_master, {}));
}

}  // namespace
}  // namespace headrace::test

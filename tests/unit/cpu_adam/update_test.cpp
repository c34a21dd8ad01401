// Every optimizer over every format, on every instruction set: the bits of the oracle, for any size, offset
// and cut, and no byte beyond.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cpu_adam/update_piece.h"
#include "headrace/cpu_pool.h"
#include "headrace/errors.h"
#include "unit/cpu_adam/isa_test.h"
#include "unit/cpu_adam/update_oracle.h"

namespace headrace::test {
namespace {

const std::vector<OptimizerArguments>& optimizers() {
  using enum OptimizerKind;
  static const std::vector<OptimizerArguments> all = {
      {.kind = adam, .weight_decay = 0.1, .step = 3, .gradient_scale = 0.37f, .seed = 5},
      {.kind = adam, .weight_decay = 0.1, .decoupled = false, .maximize = true, .step = 1000},
      {.kind = adam, .epsilon = 1e-3, .amsgrad = true, .step = 3},
      {.kind = adam, .weight_decay = 0.1, .decoupled = false, .amsgrad = true, .step = 1, .seed = 9},
      {.kind = adagrad, .learning_rate = 1e-2, .epsilon = 1e-10, .rate_decay = 0.1, .step = 3},
      {.kind = adagrad, .learning_rate = 1e-2, .weight_decay = 0.1, .maximize = true, .step = 1000},
      {.kind = lion, .learning_rate = 1e-4, .beta2 = 0.99, .weight_decay = 0.1, .step = 3, .seed = 1},
      {.kind = sgd, .learning_rate = 0.1, .weight_decay = 0.1, .step = 3, .gradient_scale = 0.25f},
      {.kind = sgd, .learning_rate = 0.1, .momentum = 0.9, .dampening = 0.5, .step = 3},
      {.kind = sgd, .weight_decay = 0.1, .momentum = 0.9, .dampening = 0.5, .maximize = true, .step = 1},
      {.kind = sgd, .learning_rate = 0.1, .momentum = 0.9, .nesterov = true, .step = 1000},
  };
  return all;
}

struct Formats {
  MasterDType master;
  DType parameter_dtype;
  MomentDType moments;
  DType gradient_dtype;
  std::optional<DType> low;
};

std::vector<Formats> every_format() {
  std::vector<Formats> all;
  for (const MomentDType moments : {MomentDType::f32, MomentDType::bf16, MomentDType::int8})
    for (const DType gradient : {DType::f32, DType::bf16, DType::f16})
      for (const std::optional<DType> low : {std::optional<DType>(), std::optional(DType::bf16),
                                             std::optional(DType::f16), std::optional(DType::f32)}) {
        all.push_back({MasterDType::f32, DType::bf16, moments, gradient, low});
        all.push_back({MasterDType::bf16, DType::bf16, moments, gradient, low});
        all.push_back({MasterDType::none, DType::f32, moments, gradient, low});
        all.push_back({MasterDType::none, DType::bf16, moments, gradient, low});
      }
  return all;
}

UpdateCase case_of(const OptimizerArguments& arguments, const Formats& formats, std::uint64_t numel) {
  return {.arguments = arguments,
          .master = formats.master,
          .moments = formats.moments,
          .parameter_dtype = formats.parameter_dtype,
          .gradient_dtype = formats.gradient_dtype,
          .low = formats.low,
          .numel = numel,
          .first_element = 64 * numel};
}

class UpdateOnIsa : public IsaTest {
 protected:
  std::string wrong(const UpdateCase& c, Inputs inputs, std::uint32_t seed) const {
    const UpdateValues before = values_of(c, inputs, seed);
    return difference(c, updated(c, before, GetParam()), expected(c, before));
  }
};
INSTANTIATE_TEST_SUITE_P(Every, UpdateOnIsa, every_isa, isa_test_name);

TEST_P(UpdateOnIsa, every_optimizer_has_the_bits_of_the_formula_in_every_format) {
  std::uint32_t seed = 0;
  for (const OptimizerArguments& arguments : optimizers()) {
    for (const Formats& formats : every_format()) {
      UpdateCase c = case_of(arguments, formats, 201);
      c.offset_bytes = seed * 2 % 64;
      ASSERT_EQ(wrong(c, Inputs::adversarial, ++seed), "") << described(c);
      ASSERT_EQ(wrong(c, Inputs::ordinary, seed), "") << described(c);
    }
  }
}

TEST_P(UpdateOnIsa, every_numel_and_offset_has_the_bits_of_the_formula_and_no_byte_beyond_is_touched) {
  const std::vector<Formats> formats = every_format();
  std::size_t next = 0;
  for (const std::uint64_t numel :
       {0, 1, 2, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 127, 128, 129, 1023, 1024, 1025}) {
    for (std::size_t offset = 0; offset < 64; ++offset, ++next) {
      UpdateCase c =
          case_of(optimizers()[next % optimizers().size()], formats[next * 7 % formats.size()], numel);
      c.offset_bytes = offset;
      ASSERT_EQ(wrong(c, Inputs::adversarial, static_cast<std::uint32_t>(next)), "") << described(c);
    }
  }
}

// Two updates of one quantisation block, the first with `gradient` for element 5.
struct BlockRun {
  UpdateCase c;
  UpdateValues first, second;

  BlockRun(const OptimizerArguments& arguments, float gradient, Isa isa)
      : c(case_of(arguments, {MasterDType::f32, DType::f32, MomentDType::int8, DType::f32, std::nullopt},
                  quantised_block_numel)) {
    UpdateValues before = values_of(c, Inputs::ordinary, 7);
    const UpdateValues ordinary = before;
    for (Bits& codes : before.moments)
      if (!codes.empty()) codes[odd_one] = 0;
    std::vector<float> gradients = decoded(before.gradient, DType::f32);
    gradients[odd_one] = gradient;
    before.gradient = encoded(gradients, DType::f32);
    first = second = updated(c, before, isa);
    second.gradient = ordinary.gradient;
    second = updated(c, second, isa);
  }
  std::size_t moments() const { return static_cast<std::size_t>(moment_count(c.format())); }
  bool squared(std::size_t k) const { return moment_of(c.format(), static_cast<int>(k)).squared; }
  unsigned largest_code(std::size_t k) const { return squared(k) ? 255 : 127; }

  static constexpr std::size_t odd_one = 5;
};

TEST_P(UpdateOnIsa, an_infinite_moment_becomes_the_largest_of_its_block_whose_others_stay_finite) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  for (const OptimizerArguments& arguments : optimizers()) {
    for (const float gradient : {infinity, -infinity, 1e30f}) {
      const BlockRun run(arguments, gradient, GetParam());
      for (std::size_t k = 0; k < run.moments(); ++k) {
        const float scale = run.first.scales[k][0];
        ASSERT_TRUE(std::isfinite(run.squared(k) ? scale * scale : scale)) << described(run.c);
        ASSERT_EQ(run.first.moments[k][run.odd_one] & run.largest_code(k), run.largest_code(k));
      }
      const std::vector<float> master = decoded(run.second.master, DType::f32);
      for (std::size_t i = 0; i < master.size(); ++i)
        ASSERT_TRUE(std::isfinite(master[i]) || i == run.odd_one) << described(run.c) << ", element " << i;
    }
  }
}

TEST_P(UpdateOnIsa, a_nan_moment_becomes_the_largest_of_its_block_and_changes_no_other) {
  for (const OptimizerArguments& arguments : optimizers()) {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    const BlockRun run(arguments, nan, GetParam()), without(arguments, 0.0f, GetParam());
    for (std::size_t k = 0; k < run.moments(); ++k) {
      Bits codes = run.first.moments[k];
      ASSERT_EQ(codes[run.odd_one], run.largest_code(k)) << described(run.c);
      codes[run.odd_one] = without.first.moments[k][run.odd_one];
      ASSERT_EQ(codes, without.first.moments[k]) << described(run.c);
      ASSERT_EQ(run.first.scales[k], without.first.scales[k]) << described(run.c);
    }
  }
}

// The formats that differ in what a kernel does besides converting.
std::vector<Formats> state_formats() {
  std::vector<Formats> all;
  for (const MomentDType moments : {MomentDType::f32, MomentDType::bf16, MomentDType::int8})
    for (const MasterDType master : {MasterDType::f32, MasterDType::bf16})
      all.push_back({master, DType::bf16, moments, DType::bf16, DType::bf16});
  return all;
}

TEST_P(UpdateOnIsa, one_two_or_seven_blocks_have_the_same_bits) {
  for (const OptimizerArguments& arguments : optimizers()) {
    for (const Formats& formats : state_formats()) {
      UpdateCase c = case_of(arguments, formats, 1999);
      const UpdateValues before = values_of(c, Inputs::ordinary, 3);
      const std::uint64_t unit = formats.moments == MomentDType::int8 ? quantised_block_numel : 1;
      for (const std::uint64_t blocks : {1, 2, 7}) {
        const UpdateValues cut = updated(c, before, [&](const UpdateSpan& span) {
          for (std::uint64_t b = 0; b < blocks; ++b) {
            const std::uint64_t begin = c.numel * b / blocks / unit * unit;
            const std::uint64_t end = b + 1 == blocks ? c.numel : c.numel * (b + 1) / blocks / unit * unit;
            optimizer_update(part_of(span, begin, end - begin), arguments, GetParam());
          }
        });
        ASSERT_EQ(difference(c, cut, expected(c, before)), "") << blocks << " blocks of " << described(c);
      }
    }
  }
}

TEST_P(UpdateOnIsa, steps_1_3_and_1000_have_the_bits_of_the_formula) {
  for (OptimizerArguments arguments : optimizers()) {
    for (const std::uint64_t step : {1, 3, 1000}) {
      arguments.step = step;
      for (const Formats& formats : state_formats()) {
        const UpdateCase c = case_of(arguments, formats, 130);
        ASSERT_EQ(wrong(c, Inputs::ordinary, 17), "") << described(c);
      }
    }
  }
}

// The random bits change their key at each multiple of 2^32 elements, wherever a span begins.
TEST_P(UpdateOnIsa, a_span_across_a_multiple_of_2_to_the_32_elements_has_the_bits_of_the_formula) {
  for (const Formats& formats : state_formats()) {
    for (const std::uint64_t before : {64, 128, 1, 7, 100, 193}) {
      if (formats.moments == MomentDType::int8 && before % quantised_block_numel != 0) continue;
      for (const std::uint64_t border : {std::uint64_t{1} << 32, std::uint64_t{5} << 32}) {
        UpdateCase c = case_of(optimizers()[3], formats, 400);
        c.first_element = border - before;
        ASSERT_EQ(wrong(c, Inputs::ordinary, 23), "") << described(c);
      }
    }
  }
}

TEST_P(UpdateOnIsa, every_half_goes_through_as_gradient_and_as_output) {
  std::vector<float> halves;
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits)
    halves.push_back(to_float(fp16{static_cast<std::uint16_t>(bits)}));
  UpdateCase c =
      case_of({.kind = OptimizerKind::sgd, .learning_rate = 1.0},
              {MasterDType::f32, DType::f32, MomentDType::f32, DType::f16, DType::f16}, halves.size());
  UpdateValues before = values_of(c, Inputs::ordinary, 1);
  before.gradient = encoded(halves, DType::f16);
  before.master = encoded(std::vector<float>(halves.size(), 0.0f), DType::f32);
  const UpdateValues after = updated(c, before, GetParam());
  for (std::size_t i = 0; i < halves.size(); ++i) {
    ASSERT_TRUE(same_bits(element(after.low, DType::f16, i), 0.0f - halves[i])) << halves[i];
  }
}

TEST_P(UpdateOnIsa, stores_past_the_caches_have_the_bits_of_the_formula_and_touch_no_byte_beyond) {
  const KernelTable& kernels = kernels_of(GetParam());
  for (const std::uint64_t numel : {0, 31, 64, 100, 200, 1000}) {
    for (const Formats& formats : every_format()) {
      UpdateCase c = case_of(optimizers()[0], formats, numel);
      c.offset_bytes = numel % 64;
      const UpdateValues before = values_of(c, Inputs::adversarial, 31);
      const UpdateValues after = updated(c, before, [&](const UpdateSpan& span) {
        update_piece(kernels, span, constants_of(c.arguments), Stores::streaming);
      });
      ASSERT_EQ(difference(c, after, expected(c, before)), "") << described(c);
    }
  }
}

class UpdateParallel : public testing::TestWithParam<int> {
 protected:
  void SetUp() override { set_cpu_threads(GetParam()); }
  void TearDown() override { set_cpu_threads(0); }
};
INSTANTIATE_TEST_SUITE_P(Threads, UpdateParallel, testing::Values(1, 2, 3),
                         testing::PrintToStringParamName());

TEST_P(UpdateParallel, every_format_has_the_bits_of_the_formula) {
  for (const Formats& formats : state_formats()) {
    const UpdateCase c = case_of(optimizers()[3], formats, 100003);
    const UpdateValues before = values_of(c, Inputs::ordinary, 3);
    const UpdateValues after =
        updated(c, before, [&](const UpdateSpan& span) { optimizer_update_parallel(span, c.arguments); });
    ASSERT_EQ(difference(c, after, expected(c, before)), "") << described(c);
  }
}

TEST(Update, refuses_states_of_another_optimizer_by_both_names) {
  const auto refused = [](const OptimizerArguments& states, const OptimizerArguments& arguments) {
    UpdateSpan span;
    span.format = format_of(states, MasterDType::f32, MomentDType::f32);
    try {
      optimizer_update(span, arguments);
    } catch (const UsageError& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  using enum OptimizerKind;
  EXPECT_THAT(refused({.kind = lion}, {.kind = adagrad}), testing::HasSubstr("lion"));
  EXPECT_THAT(refused({.kind = lion}, {.kind = adagrad}), testing::HasSubstr("adagrad"));
  EXPECT_THAT(refused({}, {.amsgrad = true}), testing::HasSubstr("adam with amsgrad"));
  EXPECT_THAT(refused({.kind = sgd, .momentum = 0.9}, {.kind = sgd}),
              testing::HasSubstr("sgd with momentum"));
}

TEST(Update, refuses_types_that_have_no_meaning) {
  UpdateSpan span;
  span.format.master = MasterDType::none;
  span.parameter_dtype = DType::f16;
  EXPECT_THROW(optimizer_update(span, {}), UsageError);
  EXPECT_THROW(optimizer_update_parallel(span, {}), UsageError);
  span = {};
  span.format.moments = MomentDType::int8;
  span.first_element = 32;
  EXPECT_THROW(optimizer_update(span, {}), UsageError);
}

}  // namespace
}  // namespace headrace::test

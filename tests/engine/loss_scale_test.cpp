// Loss scaling through the engine: overflow of one rank, commits, the end at the smallest scale.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <mutex>

#include "headrace/errors.h"
#include "tests/support/engine_harness.h"

namespace headrace::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

EngineRun fp16_run(int world_size, const Combination& combination, const TemporaryFolder& folder) {
  EngineRun run;
  run.world_size = world_size;
  run.options = with(run.options, combination);
  run.options.dtype = DType::f16;
  run.options.loss_scale = {.initial_power = 4, .window = 2, .hysteresis = 2};
  run.options.seed = 11;
  run.options.swap_block_bytes = 12 * 4096;
  if (combination.uses_nvme()) run.options.swap_directories = {folder.path()};
  return run;
}

// Gathers what every rank says at its end.
struct Gathered {
  std::mutex mutex;
  std::vector<std::string> texts;
  void add(std::string text) {
    const std::lock_guard lock(mutex);
    texts.push_back(std::move(text));
  }
};

// What each rank throws.
std::vector<std::string> errors_of_ranks(const EngineRun& run) {
  Gathered errors;
  run_ranks(run.world_size, [&](int rank, const std::shared_ptr<ThreadHub>& hub) {
    const auto device = make_cpu_device(run.device);
    const auto communicator = run.world_size == 1 ? make_single_communicator(*device)
                                                  : make_thread_communicator(hub, *device, rank);
    try {
      run_engine_rank(run, rank, *device, *communicator);
    } catch (const Error& error) {
      errors.add(error.what());
    }
  });
  return std::move(errors.texts);
}

// FIELD-CASES N4: one rank's infinity skips the step and lowers the scale everywhere.
TEST(LossScale, overflow_on_one_rank_skips_the_step_and_halves_the_scale_on_every_rank) {
  for (const Combination& combination : pairwise_combinations(1)) {
    const TemporaryFolder folder;
    EngineRun run = fp16_run(3, combination, folder);
    run.options.loss_scale.hysteresis = 1;
    run.steps = 3;
    Gathered scales;
    run.before_step = [&](int rank, std::uint64_t step, ToyModule& module) {
      module.poison_unit_1 = rank == 2 && step == 1;
      if (step == 2) scales.add(fmt::format("{}", module.loss_scale));
    };
    const EngineRunResult result = run_engine(run);
    EXPECT_FALSE(result.steps[0].skipped || result.steps[2].skipped) << describe(combination);
    EXPECT_TRUE(result.steps[1].skipped) << describe(combination);
    EXPECT_EQ(scales.texts, (std::vector<std::string>{"8", "8", "8"})) << describe(combination);
    EXPECT_EQ(result.state.loss_scale, (LossScale{.scale = 8, .good_steps = 1, .hysteresis_left = 1}));
  }
}

// The norm is that of the gradient, whatever it was multiplied by; powers of two change no bit of an update.
TEST(LossScale, that_is_another_power_of_two_gives_the_same_norms_and_weights) {
  const TemporaryFolder folder;
  std::vector<std::vector<float>> weights;
  std::vector<double> norms;
  for (const double scale : {1024.0, 2048.0}) {
    EngineRun run = fp16_run(2, {2, Tier::host, Tier::host, Tier::device}, folder);
    run.options.loss_scale = {.fixed = scale};
    run.steps = 2;
    weights.emplace_back();
    run.inspect = [&](int rank, Engine& engine, Device&) {
      engine.visit_optimizer_state([&](UnitId, std::uint64_t, int, std::span<const float> values) {
        if (rank == 0) weights.back().insert(weights.back().end(), values.begin(), values.end());
      });
    };
    norms.push_back(run_engine(run).steps[1].gradient_norm);
  }
  EXPECT_NEAR(norms[0], norms[1], 1e-6 * norms[0]);
  ASSERT_EQ(weights[0].size(), weights[1].size());
  for (std::size_t i = 0; i < weights[0].size(); ++i) ASSERT_NEAR(weights[0][i], weights[1][i], 2e-4) << i;
}

// FIELD-CASES N5, N9: what a commit holds goes on exactly, also from within a series of overflows.
TEST(LossScale, resumed_after_any_step_goes_through_the_scales_of_the_uninterrupted_run) {
  const Combination combination{2, Tier::nvme, Tier::host, Tier::device};
  constexpr int steps = 9;
  const auto make = [&](const TemporaryFolder& folder) {
    EngineRun run = fp16_run(2, combination, folder);
    run.options.loss_scale.hysteresis = 3;
    run.before_step = [](int rank, std::uint64_t step, ToyModule& module) {
      module.poison_unit_1 = rank == 1 && (step == 1 || step == 2 || step == 3 || step == 7);
    };
    return run;
  };
  const TemporaryFolder whole;
  EngineRun run = make(whole);
  run.steps = steps;
  const EngineRunResult expected = run_engine(run);
  ASSERT_TRUE(expected.steps[7].skipped);
  for (int first = 0; first < steps; ++first) {
    const TemporaryFolder parts;
    EngineRun part = make(parts);
    part.steps = first;
    run_engine(part);
    part.resume = true;
    part.steps = steps - first;
    const EngineRunResult result = run_engine(part);
    EXPECT_EQ(result.hash, expected.hash) << first;
    EXPECT_EQ(result.state.loss_scale, expected.state.loss_scale) << first;
  }
}

// FIELD-CASES N5.
TEST(LossScale, at_its_minimum_an_overflow_ends_every_rank_with_the_parameter_and_the_rank_that_had_it) {
  for (const Combination& combination : pairwise_combinations(2)) {
    const TemporaryFolder folder;
    EngineRun run = fp16_run(3, combination, folder);
    run.options.accumulation = 2;
    run.options.loss_scale = {.initial_power = 1, .hysteresis = 2};
    run.steps = 20;
    // hysteresis, 2 -> 1, then the end.
    run.before_micro_batch = [](std::uint64_t, int micro_batch, ToyModule& module) {
      if (micro_batch == 1) module.poison_unit_1 = false;
    };
    run.before_step = [](int rank, std::uint64_t step, ToyModule& module) {
      module.poison_unit_1 = rank == 2 && step >= 3;
    };
    const std::vector<std::string> errors = errors_of_ranks(run);
    ASSERT_EQ(errors.size(), 3u) << describe(combination);
    for (const std::string& error : errors)
      EXPECT_THAT(error,
                  AllOf(HasSubstr("step 6"), HasSubstr("minimum of 1"), HasSubstr("element 5 of b0.norm"),
                        HasSubstr("of rank 2."), HasSubstr("--dtype bf16")))
          << describe(combination);
  }
}

// Each rank's gradient is finite, their sum is not.
TEST(LossScale, at_its_minimum_a_sum_beyond_fp16_is_told_from_a_gradient_beyond_it) {
  for (const Combination& combination : pairwise_combinations(0)) {
    const TemporaryFolder folder;
    EngineRun run = fp16_run(2, combination, folder);
    run.options.loss_scale = {.initial_power = 0, .hysteresis = 1};
    run.units = {{"first", {{.name = "weak", .shape = {4096 + 70}}}},
                 {"second", {{.name = "odd", .shape = {65}}, {.name = "strong", .shape = {5000}}}}};
    for (ParameterSpec& parameter : run.units[1].parameters) parameter.initial_mean = 1.0f;
    run.options.optimizer.weight_decay = 0;
    run.before_step = [](int, std::uint64_t, ToyModule& module) {
      module.gradient_gain = 35000.0f;  // targets are in [-0.5, 0.5): below 17500, and in [17500, 52500)
    };
    run.steps = 1;
    const std::vector<std::string> errors = errors_of_ranks(run);
    ASSERT_EQ(errors.size(), 2u) << describe(combination);
    for (const std::string& error : errors)
      EXPECT_THAT(error, AllOf(HasSubstr("of odd"), HasSubstr("in the sum over 2 ranks")))
          << describe(combination);
  }
}

// FIELD-CASES N6: the check is not fp16's alone.
TEST(LossScale, of_other_types_is_1_and_their_overflow_is_skipped_all_the_same) {
  for (const DType dtype : {DType::bf16, DType::f32}) {
    const TemporaryFolder folder;
    EngineRun run = fp16_run(1, {0, Tier::host, Tier::device, Tier::device}, folder);
    run.options.dtype = dtype;
    run.before_step = [](int, std::uint64_t step, ToyModule& module) { module.poison_unit_1 = step < 9; };
    run.steps = 10;
    const EngineRunResult result = run_engine(run);
    EXPECT_EQ(result.steps.back().step, 1u);
    EXPECT_EQ(result.state.loss_scale, LossScale{});
  }
}

TEST(LossScale, without_meaning_is_refused_before_anything_is_made) {
  const TemporaryFolder folder;
  EngineRun run = fp16_run(1, {0, Tier::device, Tier::device, Tier::device}, folder);
  run.options.loss_scale.window = 0;
  EXPECT_THROW(run_engine(run), UsageError);
}

}  // namespace
}  // namespace headrace::testing

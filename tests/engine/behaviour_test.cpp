// What a step does beside the arithmetic: skips, silent units, short windows, resume, refusals.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <mutex>

#include "headrace/errors.h"
#include "src/zero/partition.h"
#include "tests/support/engine_harness.h"
#include "tests/support/unsharded_oracle.h"

namespace headrace::testing {
namespace {

EngineRun small_run(int world_size, const Combination& combination, const TemporaryFolder& folder) {
  EngineRun run;
  run.world_size = world_size;
  run.options = with(run.options, combination);
  run.options.seed = 11;
  run.options.swap_block_bytes = 12 * 4096;
  if (combination.uses_nvme()) run.options.swap_directories = {folder.path()};
  return run;
}

// FIELD-CASES N4, N6: one rank's infinity skips the step everywhere and modifies nothing.
TEST(NonFiniteGradient, on_one_rank_skips_the_step_on_every_rank_and_modifies_nothing) {
  for (const Combination& combination : pairwise_combinations(0)) {
    const TemporaryFolder folder, folder_without;
    EngineRun with_poison = small_run(3, combination, folder);
    with_poison.before_step = [](int rank, std::uint64_t step, ToyModule& module) {
      module.poison_unit_1 = rank == 2 && step == 1;
    };
    with_poison.steps = 2;
    EngineRun one_step = small_run(3, combination, folder_without);
    one_step.steps = 1;
    const EngineRunResult poisoned = run_engine(with_poison);
    const EngineRunResult clean = run_engine(one_step);
    EXPECT_TRUE(poisoned.steps[1].skipped) << describe(combination);
    EXPECT_EQ(poisoned.steps[1].gradient_norm, std::numeric_limits<double>::infinity());
    EXPECT_EQ(poisoned.steps[1].step, 1u);
    // The hash mixes the data position in, so compare the states themselves through runs that end at the same
    // position.
    EngineRun again = with_poison;
    const TemporaryFolder folder_again;
    if (!again.options.swap_directories.empty()) again.options.swap_directories = {folder_again.path()};
    std::vector<float> after_skip, after_one;
    const auto collect = [](std::vector<float>& out) {
      return [&out](int rank, Engine& engine, Device&) {
        engine.visit_optimizer_state([&](UnitId, std::uint64_t, int, std::span<const float> values) {
          if (rank == 0) out.insert(out.end(), values.begin(), values.end());
        });
      };
    };
    again.inspect = collect(after_skip);
    run_engine(again);
    const TemporaryFolder folder_one;
    if (!one_step.options.swap_directories.empty()) one_step.options.swap_directories = {folder_one.path()};
    one_step.inspect = collect(after_one);
    run_engine(one_step);
    EXPECT_EQ(after_skip, after_one) << describe(combination);
    EXPECT_FALSE(clean.steps[0].skipped);
  }
}

// FIELD-CASES N19: torch semantics, and no stale gradient of an earlier step.
TEST(SilentUnit, keeps_weights_and_moments_of_the_step_before) {
  for (const Combination& combination : pairwise_combinations(1)) {
    const TemporaryFolder folder;
    EngineRun run = small_run(2, combination, folder);
    run.steps = 2;
    run.before_step = [](int, std::uint64_t step, ToyModule& module) { module.silent[1] = step == 1; };
    std::vector<float> states;
    run.inspect = [&](int rank, Engine& engine, Device&) {
      engine.visit_optimizer_state([&](UnitId unit, std::uint64_t, int, std::span<const float> values) {
        if (rank == 0 && unit == 1) states.insert(states.end(), values.begin(), values.end());
      });
    };
    run_engine(run);
    const std::vector<float> after_silence = std::move(states);
    states.clear();
    const TemporaryFolder other;
    if (!run.options.swap_directories.empty()) run.options.swap_directories = {other.path()};
    run.steps = 1;
    run_engine(run);
    EXPECT_EQ(after_silence, states) << describe(combination);
  }
}

// Blocks of silent units are left out of the update; what is staged for their neighbours must not mix.
TEST(SilentUnit, does_not_disturb_the_update_of_the_others) {
  std::vector<std::uint64_t> hashes;
  for (const Combination& combination : pairwise_combinations(2)) {
    const TemporaryFolder folder;
    EngineRun run = small_run(2, combination, folder);
    run.device.link_bytes_per_second = 20e6;  // late copies show a slot that is used twice
    run.before_step = [](int, std::uint64_t, ToyModule& module) {
      module.silent[2] = module.silent[3] = true;
    };
    run.steps = 2;
    hashes.push_back(run_engine(run).hash);
    EXPECT_EQ(hashes.back(), hashes.front()) << describe(combination);
  }
}

// FIELD-CASES N11.
TEST(ZeroLearningRate, leaves_weights_and_updates_moments) {
  const TemporaryFolder folder;
  EngineRun run = small_run(1, {0, Tier::host, Tier::device, Tier::device}, folder);
  run.steps = 1;
  run.learning_rate = 0;
  double moments = 0;
  std::vector<float> weights, initial;
  run.inspect = [&](int, Engine& engine, Device&) {
    engine.visit_optimizer_state([&](UnitId, std::uint64_t, int kind, std::span<const float> values) {
      for (const float value : values)
        kind == 0 ? weights.push_back(value) : void(moments += std::abs(value));
    });
  };
  run_engine(run);
  EXPECT_GT(moments, 0);
  run.steps = 0;
  run.inspect = [&](int, Engine& engine, Device&) {
    engine.visit_optimizer_state([&](UnitId, std::uint64_t, int kind, std::span<const float> values) {
      if (kind == 0) initial.insert(initial.end(), values.begin(), values.end());
    });
  };
  run_engine(run);
  EXPECT_EQ(weights, initial);
}

TEST(LearningRate, that_is_negative_or_not_a_number_is_refused) {
  const TemporaryFolder folder;
  for (const double rate :
       {-1.0, std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    EngineRun run = small_run(1, {0, Tier::device, Tier::device, Tier::device}, folder);
    run.learning_rate = rate;
    EXPECT_THROW(run_engine(run), UsageError);
  }
}

// FIELD-CASES N13: after every step each low-precision element is the rounded master, on every rank.
TEST(LowPrecisionParameters, are_the_rounded_masters_after_every_step) {
  for (const int world_size : {1, 2, 3, 4})
    for (const Combination& combination :
         world_size == 3 ? pairwise_combinations(0) : legal_combinations(false)) {
      const TemporaryFolder folder;
      EngineRun run = small_run(world_size, combination, folder);
      run.steps = 2;
      std::vector<std::vector<float>> parameters(static_cast<std::size_t>(world_size) * 8);
      std::vector<std::vector<std::pair<std::uint64_t, std::vector<float>>>> masters(8);
      std::mutex mutex;
      run.inspect = [&](int rank, Engine& engine, Device&) {
        for (UnitId u = 0; u < engine.unit_count(); ++u)
          parameters[static_cast<std::size_t>(rank) * 8 + u] = engine.read_parameters(u);
        engine.visit_optimizer_state(
            [&](UnitId unit, std::uint64_t first, int kind, std::span<const float> values) {
              const std::lock_guard lock(mutex);
              if (kind == 0)
                masters[unit].emplace_back(first, std::vector<float>(values.begin(), values.end()));
            });
      };
      run_engine(run);
      for (UnitId u = 0; u < run.units.size(); ++u) {
        const UnitLayout layout = make_unit_layout(run.units[u]);
        const auto gaps = alignment_gaps(layout);
        for (const auto& [first, values] : masters[u])
          for (int rank = 0; rank < world_size; ++rank)
            for (std::size_t i = 0; i < values.size(); ++i) {
              const std::uint64_t at = first + i;
              const bool gap = std::any_of(gaps.begin(), gaps.end(),
                                           [&](const Range& g) { return at >= g.first && at < g.end(); });
              if (gap) continue;
              ASSERT_EQ(parameters[static_cast<std::size_t>(rank) * 8 + u][at], to_float(to_bf16(values[i])))
                  << describe(combination) << " ranks " << world_size << " unit " << u << " element " << at;
            }
      }
    }
}

// FIELD-CASES N9, A15: training in two processes equals training in one.
TEST(ResumeFromSwap, equals_the_uninterrupted_run) {
  for (const int world_size : {1, 3})
    for (const Combination& combination : pairwise_combinations(static_cast<std::uint32_t>(world_size))) {
      if (combination.optimizer != Tier::nvme) continue;
      const TemporaryFolder whole, parts;
      EngineRun run = small_run(world_size, combination, whole);
      run.steps = 5;
      const std::uint64_t expected = run_engine(run).hash;
      run.options.swap_directories = {parts.path()};
      run.steps = 2;
      run_engine(run);
      run.resume = true;
      run.options.swap_cache_bytes = 150'000;  // may differ from the run before
      run.steps = 3;
      EXPECT_EQ(run_engine(run).hash, expected) << describe(combination) << " ranks " << world_size;
    }
}

// A skipped step is a step: what follows it reads the data that comes after it.
TEST(ResumeFromSwap, after_a_skipped_step_equals_the_uninterrupted_run) {
  const Combination combination{2, Tier::nvme, Tier::host, Tier::device};
  const TemporaryFolder whole, parts;
  EngineRun run = small_run(2, combination, whole);
  run.before_step = [](int rank, std::uint64_t step, ToyModule& module) {
    module.poison_unit_1 = rank == 1 && step == 1;
  };
  run.steps = 4;
  const EngineRunResult expected = run_engine(run);
  ASSERT_TRUE(expected.steps[1].skipped);
  run.options.swap_directories = {parts.path()};
  run.steps = 2;
  run_engine(run);
  run.resume = true;
  run.steps = 2;
  EXPECT_EQ(run_engine(run).hash, expected.hash);
}

TEST(ResumeFromSwap, with_another_layout_is_refused) {
  const TemporaryFolder folder;
  EngineRun run = small_run(1, {3, Tier::nvme, Tier::host, Tier::host}, folder);
  run.steps = 1;
  run_engine(run);
  run.resume = true;
  run.units.pop_back();
  EXPECT_THROW(run_engine(run), Error);
}

// Ordering faults show under delays (FIELD-CASES N14): a paced link and random lane delays change no bit.
TEST(Lanes, random_delays_and_a_slow_link_change_no_bit) {
  const TemporaryFolder folder;
  const Combination combination{3, Tier::host, Tier::host, Tier::host};
  EngineRun run = small_run(2, combination, folder);
  run.steps = 3;
  run.options.accumulation = 2;
  const std::uint64_t expected = run_engine(run).hash;
  run.device.link_bytes_per_second = 50e6;
  run.device.largest_delay_seconds = 5e-4;
  EXPECT_EQ(run_engine(run).hash, expected);
}

TEST(Placement, without_meaning_is_refused_with_the_flag_to_use) {
  EngineOptions options;
  options.stage = 2;
  options.parameter_tier = Tier::host;
  try {
    resolve_placement(options);
    FAIL() << "parameters on the host at stage 2 were accepted";
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("--stage 3"), std::string::npos) << error.what();
  }
  options = {};
  options.stage = 1;
  options.gradient_tier = Tier::host;
  EXPECT_THROW(resolve_placement(options), UsageError);
  options = {};
  options.stage = 4;
  EXPECT_THROW(resolve_placement(options), UsageError);
}

TEST(Units, with_the_same_parameter_name_twice_are_refused) {
  const TemporaryFolder folder;
  EngineRun run = small_run(1, {0, Tier::device, Tier::device, Tier::device}, folder);
  run.units.push_back(run.units.front());
  EXPECT_THROW(run_engine(run), UsageError);
}

}  // namespace
}  // namespace headrace::testing

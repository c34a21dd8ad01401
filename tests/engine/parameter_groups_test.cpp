// Parameter groups in the engine: each parameter's update takes the hyper-parameters of its own group,
// wherever blocks, shards and units are cut, and the rates of this step.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "headrace/errors.h"
#include "tests/support/engine_harness.h"
#include "tests/support/unsharded_oracle.h"

namespace headrace::testing {
namespace {

using ::testing::HasSubstr;

// Borders of blocks of 4096 elements fall inside each group, in a unit of its own and in one that all share.
std::vector<UnitSpec> three_groups() {
  const auto parameter = [](std::string name, std::int64_t numel, std::uint32_t group, bool decayed) {
    return ParameterSpec{.name = std::move(name),
                         .shape = {numel},
                         .weight_decay = decayed,
                         .initial_std = 0.5f,
                         .group = group};
  };
  return {{"shared",
           {parameter("s0", 5001, 0, true), parameter("s1", 9007, 1, true), parameter("s2", 12289, 2, false),
            parameter("s0b", 3, 0, false), parameter("s2b", 65, 2, true)}},
          {"one", {parameter("o1", 10007, 1, false)}},
          {"zero", {parameter("z0", 8195, 0, true)}},
          {"two", {parameter("t2", 4097, 2, true)}}};
}

// FIELD-CASES N10: rates 0, 1e-3 and 1e-2, decays 0, 0.1 and 0.
EngineRun run_of_three_groups(const Combination& combination, int world_size, const TemporaryFolder& folder) {
  EngineRun run;
  run.options = with(run.options, combination);
  run.options.optimizer.weight_decay = 0.3;  // every group says its own
  run.options.groups = {{.weight_decay = 0.0}, {.weight_decay = 0.1}, {.weight_decay = 0.0}};
  run.options.seed = 3;
  run.options.swap_block_bytes = 12 * 4096;
  run.options.swap_buffers = 4;
  if (combination.uses_nvme()) run.options.swap_directories = {folder.path()};
  run.world_size = world_size;
  run.steps = 3;
  run.units = three_groups();
  run.group_rates = [](std::uint64_t) { return std::vector<double>{0, 1e-3, 1e-2}; };
  return run;
}

// Master values of this rank by (unit, first element).
using Masters = std::map<std::pair<UnitId, std::uint64_t>, float>;
void collect_masters(Engine& engine, Masters& masters) {
  engine.visit_optimizer_state(
      [&](UnitId unit, std::uint64_t first, int kind, std::span<const float> values) {
        for (std::size_t i = 0; kind == 0 && i < values.size(); ++i) masters[{unit, first + i}] = values[i];
      });
}

TEST(ParameterGroups, have_their_own_rates_and_decays_in_every_stage_and_tier) {
  for (const int world_size : {1, 3}) {
    std::uint64_t expected = 0;
    for (const Combination& combination : pairwise_combinations(static_cast<std::uint32_t>(world_size))) {
      const TemporaryFolder folder;
      const EngineRun run = run_of_three_groups(combination, world_size, folder);
      if (expected == 0) expected = run_oracle(run).hash;
      EXPECT_EQ(run_engine(run).hash, expected) << describe(combination) << ", ranks " << world_size;
    }
  }
}

TEST(ParameterGroups, of_rate_0_are_unchanged_to_the_bit_and_the_others_are_not) {
  for (const Combination& combination : pairwise_combinations(0)) {
    const TemporaryFolder folder, folder_before;
    Masters before, after;
    EngineRun run = run_of_three_groups(combination, 1, folder);
    run.inspect = [&](int, Engine& engine, Device&) { collect_masters(engine, after); };
    run_engine(run);
    if (combination.uses_nvme()) run.options.swap_directories = {folder_before.path()};
    run.steps = 0;
    run.inspect = [&](int, Engine& engine, Device&) { collect_masters(engine, before); };
    run_engine(run);
    ASSERT_EQ(before.size(), after.size());
    for (UnitId u = 0; u < run.units.size(); ++u) {
      const UnitLayout layout = make_unit_layout(run.units[u]);
      for (std::size_t p = 0; p < layout.offsets.size(); ++p) {
        const ParameterSpec& spec = layout.spec.parameters[p];
        std::uint64_t changed = 0;
        for (std::uint64_t i = 0; i < spec.numel(); ++i)
          changed += before.at({u, layout.offsets[p] + i}) != after.at({u, layout.offsets[p] + i});
        if (spec.group == 0) {
          EXPECT_EQ(changed, 0u) << spec.name << ", " << describe(combination);
        } else {
          EXPECT_GT(changed, spec.numel() / 2) << spec.name << ", " << describe(combination);
        }
      }
    }
  }
}

TEST(ParameterGroups, take_rates_that_change_in_mid_run_at_the_next_step_also_where_states_are_swapped) {
  std::uint64_t expected = 0, constant = 0;
  for (const Combination& combination : pairwise_combinations(2)) {
    const TemporaryFolder folder;
    EngineRun run = run_of_three_groups(combination, 2, folder);
    run.steps = 4;
    if (constant == 0) constant = run_oracle(run).hash;
    run.group_rates = [](std::uint64_t step) {
      return step < 2 ? std::vector<double>{0, 1e-3, 1e-2} : std::vector<double>{5e-3, 0, 1e-4};
    };
    if (expected == 0) expected = run_oracle(run).hash;
    EXPECT_EQ(run_engine(run).hash, expected) << describe(combination);
  }
  EXPECT_NE(expected, constant);
}

// FIELD-CASES N8, and all that a group may say, by factors of one rate.
TEST(ParameterGroups, have_their_own_betas_epsilon_and_sign_and_a_factor_of_the_one_rate) {
  std::uint64_t expected = 0;
  for (const Combination& combination : pairwise_combinations(1)) {
    const TemporaryFolder folder;
    EngineRun run = run_of_three_groups(combination, 2, folder);
    run.group_rates = {};
    run.options.groups = {{},
                          {.learning_rate_factor = 0.25, .beta1 = 0.5, .beta2 = 0.9, .weight_decay = 0.7},
                          {.learning_rate_factor = 2, .epsilon = 1e-2, .maximize = true}};
    if (expected == 0) expected = run_oracle(run).hash;
    EXPECT_EQ(run_engine(run).hash, expected) << describe(combination);
  }
}

TEST(ParameterGroups, of_every_optimizer_and_fewer_bits_have_the_bits_of_the_unsharded_computation) {
  using enum OptimizerKind;
  const std::vector<Combination> combinations = legal_combinations(true);
  std::size_t variant = 0;
  for (const OptimizerArguments& optimizer : {OptimizerArguments{.kind = adam, .amsgrad = true},
                                              {.kind = lion, .beta2 = 0.99},
                                              {.kind = adagrad, .rate_decay = 0.1},
                                              {.kind = sgd, .momentum = 0.9, .nesterov = true}})
    for (const MomentDType moments : {MomentDType::bf16, MomentDType::int8}) {
      const TemporaryFolder folder;
      EngineRun run = run_of_three_groups(combinations[variant++ * 5 % combinations.size()], 2, folder);
      run.options.optimizer = optimizer;
      run.options.master_dtype = MasterDType::bf16;
      run.options.moment_dtype = moments;
      EXPECT_EQ(run_engine(run).hash, run_oracle(run).hash) << text_of(run.options.state_format());
    }
}

std::string refusal(const EngineRun& run) {
  try {
    run_engine(run);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(ParameterGroups, without_meaning_are_refused_by_number) {
  const TemporaryFolder folder;
  const EngineRun good = run_of_three_groups({0, Tier::device, Tier::device, Tier::device}, 1, folder);
  EngineRun run = good;
  run.options.groups[2].beta1 = 1.0;
  EXPECT_THAT(refusal(run), HasSubstr("parameter group 2: optimizer: beta1 is 1"));
  run = good;
  run.options.groups.pop_back();
  EXPECT_THAT(refusal(run), HasSubstr("parameter s2 names parameter group 2; there are 2"));
  run = good;
  run.options.groups[1].learning_rate_factor = -1;
  EXPECT_THAT(refusal(run), HasSubstr("parameter group 1: a learning rate factor of -1"));
  run = good;
  run.group_rates = [](std::uint64_t) { return std::vector<double>{0, 1}; };
  EXPECT_THAT(refusal(run), HasSubstr("2 learning rates for 3 parameter groups"));
  run.options.groups.clear();
  EXPECT_THAT(refusal(run), HasSubstr("at least one parameter group"));
}

}  // namespace
}  // namespace headrace::testing

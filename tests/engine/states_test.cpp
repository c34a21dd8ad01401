// Every optimizer with every type of master and moments: the bits of the unsharded computation whatever the
// stage, the tiers, the number of ranks and the size of blocks; and what is refused.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include "headrace/errors.h"
#include "headrace/optimizer_blocks.h"
#include "tests/support/engine_harness.h"
#include "tests/support/unsharded_oracle.h"

namespace headrace::testing {
namespace {

using ::testing::HasSubstr;

struct States {
  OptimizerArguments optimizer;
  MasterDType master = MasterDType::f32;
  MomentDType moments = MomentDType::f32;
};

std::string describe(const States& states) {
  std::string name = text_of(format_of(states.optimizer, states.master, states.moments));
  if (states.optimizer.nesterov) name += " nesterov";
  if (states.optimizer.kind == OptimizerKind::adam && !states.optimizer.decoupled) name += " coupled";
  return name;
}

std::vector<OptimizerArguments> optimizers() {
  using enum OptimizerKind;
  std::vector<OptimizerArguments> all(8);
  all[1].decoupled = false;
  all[2].amsgrad = true;
  all[3].kind = adagrad, all[3].rate_decay = 0.01, all[3].epsilon = 1e-10;
  all[4].kind = lion, all[4].beta2 = 0.99;
  all[5].kind = sgd;
  all[6].kind = sgd, all[6].momentum = 0.9, all[6].dampening = 0.1, all[6].maximize = true;
  all[7].kind = sgd, all[7].momentum = 0.9, all[7].nesterov = true;
  for (OptimizerArguments& each : all) each.weight_decay = 0.1;
  return all;
}

// All of them of one type of master.
std::vector<States> states_with(MasterDType master) {
  std::vector<States> all;
  for (const OptimizerArguments& optimizer : optimizers())
    for (const MomentDType moments : {MomentDType::f32, MomentDType::bf16, MomentDType::int8})
      if (moments == MomentDType::f32 || moment_count(format_of(optimizer, master, moments)) > 0)
        all.push_back({optimizer, master, moments});
  return all;
}

EngineRun run_of(const States& states, const Combination& combination, int world_size,
                 const TemporaryFolder& folder) {
  EngineRun run;
  run.options = with(run.options, combination);
  run.options.optimizer = states.optimizer;
  run.options.master_dtype = states.master;
  run.options.moment_dtype = states.moments;
  run.options.seed = 5;
  run.options.clip = 20.0;
  run.options.swap_block_bytes = 1;
  if (combination.uses_nvme()) run.options.swap_directories = {folder.path()};
  run.world_size = world_size;
  run.steps = 2;
  return run;
}

// Where the parameters may be their own master.
std::vector<Combination> beside_parameters() {
  using enum Tier;
  return {{0, device, device, device}, {1, device, device, device}, {2, device, host, device},
          {3, device, device, device}, {3, host, host, host},       {3, host, device, host}};
}

class EveryState : public ::testing::TestWithParam<MasterDType> {};

// Combinations, ranks and sizes of blocks rotate, none in step with another.
TEST_P(EveryState, has_the_bits_of_the_unsharded_computation) {
  const std::vector<Combination> combinations =
      GetParam() == MasterDType::none ? beside_parameters() : legal_combinations(true);
  std::size_t count = 0;
  for (const States& states : states_with(GetParam()))
    for (const int world_size : {1, 2, 4}) {
      const TemporaryFolder folder;
      const std::size_t variant = count * 11 + count / 3;
      ++count;
      const Combination& combination = combinations[variant % combinations.size()];
      EngineRun run = run_of(states, combination, world_size, folder);
      const Bytes chunk = block_chunk_bytes(run.options.state_format());
      if (GetParam() != MasterDType::bf16 && variant % 4 == 3) run.options.dtype = DType::f32;
      run.options.swap_block_bytes = (1 + variant % 3) * chunk + variant % 2;
      run.options.swap_cache_bytes = variant % 5 == 0 ? 2 * chunk : 0;
      EXPECT_EQ(run_engine(run).hash, run_oracle(run).hash)
          << describe(states) << ", " << describe(combination) << ", ranks " << world_size;
    }
}

INSTANTIATE_TEST_SUITE_P(Masters, EveryState,
                         ::testing::Values(MasterDType::f32, MasterDType::bf16, MasterDType::none),
                         [](const auto& instance) { return std::string(name_of(instance.param)); });

// Those of the fewest bits, in all of a grid.
TEST(FewestBits, are_the_same_in_every_stage_and_tier) {
  const States states{optimizers()[0], MasterDType::bf16, MomentDType::int8};
  for (const int world_size : {1, 3}) {
    std::uint64_t expected = 0;
    for (const Combination& combination : pairwise_combinations(static_cast<std::uint32_t>(world_size))) {
      const TemporaryFolder folder;
      const EngineRun run = run_of(states, combination, world_size, folder);
      if (expected == 0) expected = run_oracle(run).hash;
      EXPECT_EQ(run_engine(run).hash, expected) << describe(combination) << " ranks " << world_size;
    }
  }
}

TEST(ResumedStates, of_fewer_bits_go_on_with_the_bits_of_the_uninterrupted_run) {
  for (const MasterDType master : {MasterDType::f32, MasterDType::bf16})
    for (const MomentDType moments : {MomentDType::bf16, MomentDType::int8}) {
      const States states{optimizers()[2], master, moments};
      const Combination combination{3, Tier::nvme, Tier::host, Tier::nvme};
      const TemporaryFolder whole, parts;
      EngineRun run = run_of(states, combination, 2, whole);
      run.steps = 4;
      const std::uint64_t expected = run_engine(run).hash;
      run.options.swap_directories = {parts.path()};
      run.steps = 2;
      run_engine(run);
      run.resume = true;
      EXPECT_EQ(run_engine(run).hash, expected) << describe(states);
    }
}

TEST(ResumedStates, of_another_format_are_refused_with_the_flag_that_differs) {
  const Combination combination{1, Tier::nvme, Tier::device, Tier::device};
  const TemporaryFolder folder;
  EngineRun run = run_of({}, combination, 1, folder);
  run.steps = 1;
  run_engine(run);
  run.resume = true;
  const auto refusal = [&](const auto& change) -> std::string {
    EngineRun other = run;
    change(other.options);
    try {
      run_engine(other);
    } catch (const UsageError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refusal([](EngineOptions&) {}), "");
  EXPECT_THAT(refusal([](EngineOptions& o) { o.moment_dtype = MomentDType::int8; }),
              HasSubstr("--moments is fp32 in the store, int8 here"));
  EXPECT_THAT(refusal([](EngineOptions& o) { o.master_dtype = MasterDType::bf16; }),
              HasSubstr("--master-dtype is fp32 in the store, bf16 here"));
  EXPECT_THAT(refusal([](EngineOptions& o) { o.optimizer.kind = OptimizerKind::lion; }),
              HasSubstr("--optimizer is adamw or adam in the store, lion here"));
  EXPECT_THAT(refusal([](EngineOptions& o) { o.optimizer.amsgrad = true; }),
              HasSubstr("--amsgrad is false in the store, true here"));
  EXPECT_THAT(refusal([](EngineOptions& o) { o.optimizer = {.kind = OptimizerKind::sgd, .momentum = 0.9}; }),
              HasSubstr("--momentum is 0 in the store, above 0 here"));
}

TEST(PlannedStates, are_the_bytes_that_the_engine_takes) {
  int variant = 0;
  for (const MasterDType master : {MasterDType::f32, MasterDType::bf16, MasterDType::none})
    for (const MomentDType moments : {MomentDType::f32, MomentDType::bf16, MomentDType::int8})
      for (const Tier tier : {Tier::device, Tier::host, Tier::nvme}) {
        if (master == MasterDType::none && tier == Tier::nvme) continue;
        const TemporaryFolder folder;
        const std::vector<OptimizerArguments> all = optimizers();
        EngineRun run = run_of({all[static_cast<std::size_t>(variant++) % all.size()], master, moments},
                               {3, tier, Tier::host, tier}, 2, folder);
        run.steps = 1;
        const RunPeaks peaks(run);
        run_engine(run);
        const MemoryPlan plan = plan_memory(toy_plan_request(run));
        EXPECT_EQ(plan.device.bytes, peaks.device.bytes) << text_of(run.options.state_format());
        EXPECT_EQ(plan.host.bytes, peaks.host.bytes) << text_of(run.options.state_format());
      }
}

// Budgets count no memory for the fp32 values of a bf16 master: they pass in pieces, in order.
TEST(InitialStates, of_a_bf16_master_are_filled_in_pieces_of_a_norm_chunk_whatever_the_block) {
  const auto device = make_cpu_device({.memory_bytes = 8 << 20, .compute_threads = 1});
  const auto kernels = make_cpu_kernels(*device);
  const auto communicator = make_single_communicator(*device);
  EngineOptions options;
  options.master_dtype = MasterDType::bf16;
  Engine engine(*device, *kernels, *communicator, nullptr, options);
  engine.add_unit({"u", {{.name = "w", .shape = {100'003}}}});
  std::uint64_t next = 0;
  engine.initialise([&](const ParameterSpec&, std::uint64_t first, std::span<float> out) {
    EXPECT_EQ(first, std::exchange(next, first + out.size()));
    EXPECT_LE(out.size(), norm_chunk_numel);
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<float>((first + i) % 251);
  });
  EXPECT_EQ(next, 100'003u);
  engine.visit_optimizer_state([&](UnitId, std::uint64_t first, int kind, std::span<const float> values) {
    for (std::size_t i = 0; kind == 0 && i < values.size(); ++i)
      ASSERT_EQ(values[i], static_cast<float>((first + i) % 251)) << first + i;
  });
}

TEST(OwnMaster, is_refused_where_the_parameters_are_not_beside_their_states) {
  const auto refusal = [](const auto& change) -> std::string {
    EngineOptions options;
    options.master_dtype = MasterDType::none;
    change(options);
    try {
      resolve_placement(options);
    } catch (const UsageError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refusal([](EngineOptions&) {}), "");
  EXPECT_THAT(refusal([](EngineOptions& o) { o.optimizer_tier = Tier::host; }),
              HasSubstr("--offload-parameters"));
  EXPECT_THAT(refusal([](EngineOptions& o) {
                o.stage = 3;
                o.optimizer_tier = o.parameter_tier = Tier::nvme;
              }),
              HasSubstr("--master-dtype bf16"));
  EXPECT_THAT(refusal([](EngineOptions& o) {
                o.stage = 3;
                o.optimizer_tier = o.parameter_tier = Tier::host;
                o.persistence_numel = 100;
              }),
              HasSubstr("--persistence-numel 0"));
  EXPECT_THAT(refusal([](EngineOptions& o) { o.dtype = DType::f16; }), HasSubstr("--dtype bf16"));
  EXPECT_THAT(refusal([](EngineOptions& o) {
                o.master_dtype = MasterDType::bf16;
                o.dtype = DType::f32;
              }),
              HasSubstr("--master-dtype fp32"));
}

}  // namespace
}  // namespace headrace::testing

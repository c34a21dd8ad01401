// The engine on a CUDA device, driven by the toy module: every stage and tier gives the bits of the
// independent unsharded computation, which knows neither the engine nor the device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <cstdlib>

#include "headrace/communicator.h"
#include "headrace/errors.h"
#include "tests/gpu/engine/toy_kernels.h"
#include "tests/support/snapshot_reading.h"
#include "tests/support/unsharded_oracle.h"

namespace headrace::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

#if defined(HEADRACE_EMULATED_GPU)
// The emulation sees the loads and stores of plain code, not those of intrinsics.
const bool scalar = ::setenv("HEADRACE_ISA", "scalar", 1) == 0;
constexpr bool emulated = true;
#else
constexpr bool emulated = false;
#endif

constexpr Bytes memory_bytes = 64 << 20;

const LaunchInfo launch = launch_info();

std::unique_ptr<Device> make_device() {
  return make_cuda_device(
      {.memory_bytes = memory_bytes, .local_rank = launch.local_rank, .local_size = launch.local_size});
}

EngineRunResult run_here(const EngineRun& run) {
  if (run.world_size == 1) return run_engine(run);
  const CommunicatorOptions options{.timeout_seconds = 60};
  const auto device = run.make_device();
  const auto communicator = make_nccl_communicator(*device, make_mpi_communicator(*device, options), options);
  return run_engine_rank(run, launch.rank, *device, *communicator);
}

class CudaEngine : public ::testing::Test {
 protected:
  void SetUp() override {
    try {
      make_device();
    } catch (const UsageError& error) {
      if (emulated) throw;
      GTEST_SKIP() << error.what();
    }
  }
  EngineRun run_of(DType dtype, int accumulation) {
    EngineRun run;
    run.options.dtype = dtype;
    run.options.accumulation = accumulation;
    run.options.optimizer.weight_decay = 0.1;
    run.options.seed = 7;
    run.options.clip = 20.0;
    run.before_step = [](int, std::uint64_t step, ToyModule& module) {
      module.gradient_gain = step % 2 == 0 ? 1.0f : 0.125f;  // clipping acts in every other step
    };
    run.world_size = launch.size;
    run.make_device = make_device;
    run.make_kernels = make_cuda_kernels;
    run.compute = &cuda_toy_compute();
    return run;
  }
  // Calls body(run, description) for a choice of legal placements, another one each time; sizes that must not
  // matter rotate.
  template <class Body>
  void for_each_placement(const EngineRun& base, Body body) {
    std::uint32_t variant = 0;
    for (const Combination& combination : pairwise_combinations(which_++)) {
      const TemporaryFolder folder;
      EngineRun run = base;
      run.options = with(base.options, combination);
      run.options.swap_directories =
          combination.uses_nvme() ? std::vector{folder.path()} : std::vector<std::string>{};
      run.options.swap_block_bytes = variant % 2 == 0 ? 12 * 4096 : 24 * 4096;
      run.options.prefetch_units = variant % 3;
      run.options.parameter_buffers = run.options.gradient_buffers = 1 + variant % 4;
      ++variant;
      body(run, describe(combination));
    }
  }

 private:
  std::uint32_t which_ = 0;
};

TEST_F(CudaEngine, every_stage_and_tier_gives_the_bits_of_the_unsharded_computation) {
  for (const auto& [dtype, accumulation] :
       {std::pair{DType::bf16, 1}, {DType::bf16, 3}, {DType::f32, 1}, {DType::f32, 3}, {DType::f16, 3}}) {
    EngineRun base = run_of(dtype, accumulation);
    if (dtype == DType::f16) {
      base.options.loss_scale = {.initial_power = 14, .window = 1, .hysteresis = 1};
      base.steps = 7;
    }
    const OracleResult oracle = run_oracle(base);
    ASSERT_GT(oracle.clipped_steps, 0);
    ASSERT_LT(oracle.clipped_steps, base.steps);
    ASSERT_EQ(oracle.skipped_steps > 0, dtype == DType::f16);
    for_each_placement(base, [&](const EngineRun& run, const std::string& placement) {
      EXPECT_EQ(run_here(run).hash, oracle.hash)
          << placement << ", " << name_of(dtype) << ", accumulation " << accumulation;
    });
  }
}

TEST_F(CudaEngine, a_snapshot_holds_the_states_of_its_moment_while_steps_go_on) {
  EngineRun base = run_of(DType::bf16, 1);
  const OracleResult oracle = run_oracle(base);
  std::uint32_t buffers = 0;
  for_each_placement(base, [&](EngineRun run, const std::string& placement) {
    run.options.snapshot_buffers = 1 + buffers++ % 3;
    SnapshotReading reading;
    run.after_step = [&](const EngineRun::Rank& at, const TrainingState& state) {
      if (state.iteration == 2) reading.begin(at.engine, std::chrono::microseconds(100));
      if (state.iteration == static_cast<std::uint64_t>(run.steps)) reading.end(at.engine);
    };
    EXPECT_EQ(run_here(run).hash, oracle.hash) << placement;
    EXPECT_TRUE(reading.found == reading.expected) << placement;
  });
}

TEST_F(CudaEngine, an_overflow_at_the_smallest_loss_scale_names_the_parameter_and_the_rank_that_had_it) {
  EngineRun base = run_of(DType::f16, 2);
  base.options.loss_scale = {.initial_power = 0, .hysteresis = 1};
  base.before_step = [](int, std::uint64_t, ToyModule& module) {
    module.poison_unit_1 = launch.rank == launch.size - 1;
  };
  for_each_placement(base, [&](const EngineRun& run, const std::string& placement) {
    try {
      run_here(run);
      ADD_FAILURE() << "no error with " << placement;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr("element 5 of b0.norm"),
                                      HasSubstr(fmt::format("of rank {}.", launch.size - 1))))
          << placement;
    }
  });
}

bool is_legal(const EngineOptions& options) {
  try {
    resolve_placement(options);
    return true;
  } catch (const UsageError&) {
    return false;
  }
}

TEST_F(CudaEngine, states_of_fewer_bits_give_the_bits_of_the_unsharded_computation) {
  using enum OptimizerKind;
  struct States {
    OptimizerArguments optimizer;
    MasterDType master;
    MomentDType moments;
  };
  const States all[] = {
      {{.kind = adam, .amsgrad = true}, MasterDType::bf16, MomentDType::int8},
      {{.kind = lion, .beta2 = 0.99}, MasterDType::none, MomentDType::bf16},
      {{.kind = sgd, .momentum = 0.9, .nesterov = true}, MasterDType::none, MomentDType::int8},
      {{.kind = adagrad, .rate_decay = 0.1}, MasterDType::bf16, MomentDType::bf16}};
  for (const States& states : all) {
    EngineRun base = run_of(DType::bf16, 1);
    base.steps = 2;
    base.options.optimizer = states.optimizer;
    base.options.optimizer.weight_decay = 0.1;
    base.options.master_dtype = states.master;
    base.options.moment_dtype = states.moments;
    const std::uint64_t expected = run_oracle(base).hash;
    const int every = states.master == MasterDType::none ? 1 : 3;  // few placements are legal for the first
    int legal = 0, runs = 0;
    for_each_placement(base, [&](const EngineRun& run, const std::string& placement) {
      if (!is_legal(run.options) || legal++ % every != 0) return;
      ++runs;
      EXPECT_EQ(run_here(run).hash, expected) << text_of(run.options.state_format()) << ", " << placement;
    });
    EXPECT_GT(runs, 0);
  }
}

TEST_F(CudaEngine, parameter_groups_have_the_bits_of_the_unsharded_computation) {
  EngineRun base = run_of(DType::bf16, 1);
  base.steps = 3;
  base.options.groups = {{.weight_decay = 0.0},
                         {.beta1 = 0.8, .beta2 = 0.9, .weight_decay = 0.1},
                         {.epsilon = 1e-6, .maximize = true}};
  for (UnitSpec& unit : base.units)
    for (std::size_t p = 0; p < unit.parameters.size(); ++p)
      unit.parameters[p].group = static_cast<std::uint32_t>(p + unit.name.size()) % 3;
  base.group_rates = [](std::uint64_t step) {
    return step < 2 ? std::vector<double>{0, 1e-3, 1e-2} : std::vector<double>{1e-3, 0, 1e-3};
  };
  const std::uint64_t expected = run_oracle(base).hash;
  for_each_placement(base, [&](const EngineRun& run, const std::string& placement) {
    EXPECT_EQ(run_here(run).hash, expected) << placement;
  });
}

TEST_F(CudaEngine, units_without_a_gradient_and_steps_that_are_skipped_leave_the_same_state_everywhere) {
  EngineRun base = run_of(DType::bf16, 2);
  base.before_step = [](int, std::uint64_t step, ToyModule& module) {
    module.silent[2] = module.silent[3] = step % 2 == 1;
    module.poison_unit_1 = step == 2 && launch.rank == launch.size - 1;
  };
  std::uint64_t expected = 0;
  for_each_placement(base, [&](const EngineRun& run, const std::string& placement) {
    const EngineRunResult result = run_here(run);
    if (expected == 0) expected = result.hash;
    EXPECT_EQ(result.hash, expected) << placement;
    EXPECT_TRUE(result.steps.at(2).skipped);
  });
}

// What was gathered ahead is not used then, and its slot is filled again: there are more equal units than
// slots.
TEST_F(CudaEngine, an_order_of_units_that_changes_gives_the_same_bits) {
  EngineRun base = run_of(DType::bf16, 2);
  base.units.clear();
  for (int block = 0; block < 5; ++block)
    base.units.push_back({fmt::format("block.{}", block),
                          {{.name = fmt::format("b{}.w", block), .shape = {101, 103}, .initial_std = 0.5f}}});
  const OracleResult oracle = run_oracle(base);
  base.before_step = [](int, std::uint64_t step, ToyModule& module) {
    module.gradient_gain = step % 2 == 0 ? 1.0f : 0.125f;
    for (std::size_t u = 0; u < module.skipped.size(); ++u)
      module.skipped[u] = step > 0 && (u + step) % 3 == 0;
  };
  for_each_placement(base, [&](const EngineRun& run, const std::string& placement) {
    EXPECT_EQ(run_here(run).hash, oracle.hash) << placement;
  });
}

}  // namespace
}  // namespace headrace::testing

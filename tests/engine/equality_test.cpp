// The numerics contract of DESIGN section 9: for one world size and batch, the same bits whatever the stage,
// tiers, block and buffer sizes, prefetch depth and thread count; and equal to an independent unsharded
// computation.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>

#include "tests/support/engine_harness.h"
#include "tests/support/unsharded_oracle.h"

namespace headrace::testing {
namespace {

EngineOptions base_options(DType dtype, int accumulation) {
  EngineOptions options;
  options.dtype = dtype;
  options.accumulation = accumulation;
  options.optimizer.weight_decay = 0.1;
  options.seed = 7;
  options.clip = 20.0;  // between the norms of the strong and the weak steps below
  return options;
}

// Strong gradients in even steps: clipping is active in some steps and not in others.
void vary_gain(int, std::uint64_t step, ToyModule& module) {
  module.gradient_gain = step % 2 == 0 ? 1.0f : 0.125f;
}

struct Case {
  int world_size;
  DType dtype;
  int accumulation;
};

std::string name_of(const Case& param) {
  return fmt::format("ranks_{}_{}_accumulation_{}", param.world_size, headrace::name_of(param.dtype),
                     param.accumulation);
}

void PrintTo(const Case& param, std::ostream* out) {
  *out << name_of(param);
}

class Equality : public ::testing::TestWithParam<Case> {};

TEST_P(Equality, every_stage_and_tier_gives_the_bits_of_the_unsharded_computation) {
  const Case param = GetParam();
  EngineRun run{.options = base_options(param.dtype, param.accumulation), .world_size = param.world_size};
  run.before_step = vary_gain;
  if (param.dtype == DType::f16) {
    run.options.loss_scale = {.initial_power = 17, .window = 1};
    run.steps = 13;
  }
  const OracleResult oracle = run_oracle(run);
  if (param.dtype == DType::f16) {  // overflows, halvings and doublings are part of what must be equal
    ASSERT_GT(oracle.skipped_steps, 1);
    ASSERT_LT(*std::ranges::min_element(oracle.scales), oracle.scales.front());
    ASSERT_GT(oracle.scales.back(), *std::ranges::min_element(oracle.scales));
  }
  ASSERT_GT(oracle.clipped_steps, 0);
  ASSERT_LT(oracle.clipped_steps, run.steps);
  int variant = 0;
  // All of stage 3 over the cases of the grid.
  const auto which = static_cast<std::uint32_t>(param.world_size + (param.dtype == DType::f32));
  const EngineOptions options = run.options;
  for (const Combination& combination : pairwise_combinations(which)) {
    const TemporaryFolder folder;
    run.options = with(options, combination);
    run.options.swap_directories =
        combination.uses_nvme() ? std::vector{folder.path()} : std::vector<std::string>{};
    // Sizes that must not matter rotate with the combination.
    run.options.swap_block_bytes = variant % 2 == 0 ? 12 * 4096 : 24 * 4096;
    run.options.swap_buffers = 3 + static_cast<std::uint32_t>(variant % 3);
    run.options.prefetch_units = static_cast<std::uint32_t>(variant % 3);
    run.options.swap_cache_bytes = variant % 3 == 0 ? 20 * 4096 * static_cast<Bytes>(variant) : 0;
    run.options.bucket_bytes = variant % 2 == 0 ? 1 : 256 << 10;
    run.options.parameter_buffers = 1 + static_cast<std::uint32_t>(variant % 4);
    run.options.gradient_buffers = 1 + static_cast<std::uint32_t>(variant % 3);
    run.options.persistence_numel = variant % 4 == 0 ? 100 : 0;
    run.options.retain_adjacent = variant % 5 != 0;
    run.device.compute_threads = 1 + variant % 2;
    ++variant;
    const EngineRunResult result = run_engine(run);
    EXPECT_EQ(result.hash, oracle.hash) << describe(combination);
    EXPECT_EQ(result.state.loss_scale.scale, oracle.scales.back()) << describe(combination);
    for (std::size_t s = 0; s < result.steps.size(); ++s)
      EXPECT_EQ(result.steps[s].gradient_norm, oracle.gradient_norms[s])
          << describe(combination) << " step " << s;
  }
}

INSTANTIATE_TEST_SUITE_P(Grid, Equality,
                         ::testing::Values(Case{1, DType::bf16, 1}, Case{1, DType::f32, 3},
                                           Case{2, DType::bf16, 3}, Case{3, DType::bf16, 1},
                                           Case{3, DType::f32, 1}, Case{4, DType::bf16, 3},
                                           Case{1, DType::f16, 3}, Case{2, DType::f16, 1},
                                           Case{3, DType::f16, 3}),
                         [](const auto& instance) { return name_of(instance.param); });

TEST(StateHash, one_flipped_bit_of_an_initial_value_changes_the_hash) {
  std::uint64_t hashes[2];
  for (const int flip : {0, 1}) {
    const auto device = make_cpu_device({.memory_bytes = 8 << 20, .compute_threads = 1});
    const auto kernels = make_cpu_kernels(*device);
    const auto communicator = make_single_communicator(*device);
    Engine engine(*device, *kernels, *communicator, nullptr, {});
    engine.add_unit({"u", {{.name = "w", .shape = {1000}}}});
    engine.initialise([&](const ParameterSpec&, std::uint64_t first, std::span<float> out) {
      for (std::size_t i = 0; i < out.size(); ++i) {
        auto bits = static_cast<std::uint32_t>(0x3f800000u + first + i);
        if (first + i == 777) bits ^= static_cast<std::uint32_t>(flip);
        out[i] = std::bit_cast<float>(bits);
      }
    });
    hashes[flip] = engine.state_hash({});
  }
  EXPECT_NE(hashes[0], hashes[1]);
}

}  // namespace
}  // namespace headrace::testing

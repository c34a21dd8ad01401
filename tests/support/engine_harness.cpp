#include "tests/support/engine_harness.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

namespace headrace::testing {

EngineRunResult run_engine_rank(const EngineRun& run, int rank, Device& device, Communicator& communicator) {
  EngineOptions options = run.options;
  for (std::string& directory : options.swap_directories) directory += fmt::format("/rank-{:05}", rank);
  const auto kernels = run.make_kernels(device);
  const bool uses_io = !options.swap_directories.empty() || run.begin || run.finish || run.after_step;
  const auto io = uses_io ? run.make_io() : nullptr;
  Engine engine(device, *kernels, communicator, io.get(), options);
  ToyModule module;
  module.specs = run.units;
  module.dtype = options.dtype;
  module.compute = run.compute;
  module.attach(engine);
  EngineRunResult result;
  result.state.rng_state = options.seed;
  result.state.loss_scale = initial_loss_scale(options);
  const auto of_rank = [&] { return EngineRun::Rank{rank, engine, *io, communicator, device, options}; };
  if (run.begin)
    result.state = run.begin(of_rank(), result.state);
  else if (run.resume)
    result.state = engine.resume();
  else
    engine.initialise({}, result.state);
  const auto per_micro_batch = static_cast<std::uint64_t>(run.world_size);
  for (int s = 0; s < run.steps; ++s) {
    const std::uint64_t iteration = result.state.iteration++;
    module.loss_scale = static_cast<float>(result.state.loss_scale.scale);
    if (run.before_step) run.before_step(rank, iteration, module);
    for (int m = 0; m < options.accumulation; ++m) {
      if (run.before_micro_batch) run.before_micro_batch(iteration, m, module);
      const std::uint64_t sample = result.state.data_position + static_cast<std::uint64_t>(rank);
      module.run(engine, device, static_cast<int>(sample), iteration);
      result.state.data_position += per_micro_batch;
    }
    result.steps.push_back(run.group_rates ? engine.step(run.group_rates(iteration), result.state)
                                           : engine.step(run.learning_rate, result.state));
    if (run.after_step) run.after_step(of_rank(), result.state);
  }
  result.hash = engine.state_hash(result.state);
  if (run.inspect) run.inspect(rank, engine, device);
  if (run.finish) run.finish(of_rank(), result.state);
  return result;
}

RunPeaks::RunPeaks(EngineRun& run) {
  run.inspect = [this](int, Engine& engine, Device&) {
    const std::lock_guard lock(mutex_);
    for (std::size_t t = 0; t < memory_tag_count; ++t) {
      device.bytes[t] = std::max(device.bytes[t], engine.device_budget().peak().bytes[t]);
      host.bytes[t] = std::max(host.bytes[t], engine.host_budget().peak().bytes[t]);
    }
  };
}

EngineRunResult run_engine(const EngineRun& run) {
  EngineRunResult first;
  for (const std::string& directory : run.options.swap_directories)
    std::filesystem::create_directories(directory);
  run_ranks(run.world_size, [&](int rank, const std::shared_ptr<ThreadHub>& hub) {
    const auto device = run.make_device ? run.make_device() : make_cpu_device(run.device);
    const auto communicator = run.world_size == 1 ? make_single_communicator(*device)
                                                  : make_thread_communicator(hub, *device, rank);
    EngineRunResult result = run_engine_rank(run, rank, *device, *communicator);
    if (rank == 0) first = std::move(result);
  });
  return first;
}

// Forward and backward of the toy module, as hook calls.
static std::vector<HookCall> toy_calls(std::size_t units) {
  std::vector<HookCall> calls;
  const auto add = [&](HookCall::Kind kind, std::size_t unit) {
    calls.push_back({kind, static_cast<std::uint32_t>(unit)});
  };
  for (std::size_t u = 0; u < units; ++u) add(HookCall::Kind::acquire, u), add(HookCall::Kind::release, u);
  for (std::size_t u = units; u-- > 0;) {
    add(HookCall::Kind::acquire, u);
    add(HookCall::Kind::gradient_buffer, u);
    add(HookCall::Kind::release, u);
    add(HookCall::Kind::gradients_ready, u);
  }
  return calls;
}

PlanRequest toy_plan_request(const EngineRun& run) {
  return {.units = run.units,
          .model_memory = {},
          .model_memory_with_recompute = {},
          .hook_calls = toy_calls(run.units.size()),
          .engine = run.options,
          .world_size = run.world_size};
}

std::vector<Combination> legal_combinations(bool nvme) {
  constexpr Tier tiers[] = {Tier::device, Tier::host, Tier::nvme};
  std::vector<Combination> all;
  for (int stage = 0; stage <= 3; ++stage)
    for (const Tier optimizer : tiers)
      for (const Tier gradients : tiers)
        for (const Tier parameters : tiers) {
          const Combination combination{stage, optimizer, gradients, parameters};
          if (combination.uses_nvme() && !nvme) continue;
          if (gradients != Tier::device && stage < 2) continue;
          if (parameters != Tier::device && stage < 3) continue;
          all.push_back(combination);
        }
  return all;
}

std::vector<Combination> pairwise_combinations(std::uint32_t which) {
  std::vector<Combination> chosen = legal_combinations(true);
  std::erase_if(chosen, [&](const Combination& c) {
    const auto sum = static_cast<std::uint32_t>(c.optimizer) + static_cast<std::uint32_t>(c.gradients) +
                     static_cast<std::uint32_t>(c.parameters);
    if (c.stage == 3) return sum % 3 != which % 3;
    return c.gradients != Tier::device && c.gradients != c.optimizer;
  });
  return chosen;
}

std::string describe(const Combination& c) {
  return fmt::format("stage {} optimizer {} gradients {} parameters {}", c.stage, name_of(c.optimizer),
                     name_of(c.gradients), name_of(c.parameters));
}

EngineOptions with(EngineOptions options, const Combination& c) {
  options.stage = c.stage;
  options.optimizer_tier = c.optimizer;
  options.gradient_tier = c.gradients;
  options.parameter_tier = c.parameters;
  return options;
}

}  // namespace headrace::testing

#include <fmt/format.h>

#include <algorithm>

#include "headrace/checkpoint.h"
#include "headrace/communicator.h"
#include "headrace/cpu_pool.h"
#include "headrace/errors.h"
#include "headrace/pinned_checkpoints.h"
#include "headrace/train.h"
#include "src/train/backends.h"

namespace headrace {
namespace {

constexpr Bytes mebibyte = Bytes{1} << 20;

[[noreturn]] void refuse(const MemoryPlan& memory, const std::string& why, const std::string& change) {
  throw DoesNotFit(fmt::format("the run does not fit: {}.\n{}{}", why, ledger_table(memory), change));
}

std::string over_limits(const MemoryPlan& memory) {
  std::string why;
  const auto add = [&](std::string_view tier, Bytes needed, Bytes limit) {
    if (limit == 0 || needed <= limit) return;
    if (!why.empty()) why += ", and ";
    why +=
        fmt::format("{} memory needs {} of a limit of {}", tier, format_bytes(needed), format_bytes(limit));
  };
  add("device", memory.device.total(), memory.device_limit);
  add("host", memory.host.total(), memory.host_limit);
  return why;
}

// This rank's share of the memory that the machine has available.
Bytes machine_share(const ResolvedOptions& options) {
  return available_host_memory() / static_cast<Bytes>(options.launch.local_size);
}

// The CPU device grows to what the plan needs; a CUDA device's memory is there to be used.
Bytes device_limit(const ResolvedOptions& options) {
  if (options.device_memory_bytes != 0 || options.device == DeviceKind::cpu)
    return options.device_memory_bytes;
  try {
    return available_cuda_memory(options.launch.local_rank);
  } catch (const UsageError& error) {
    throw UsageError(
        fmt::format("{} To plan for a device elsewhere, give its --device-memory.", error.what()));
  }
}

// What a run takes of it. The CPU device takes its limit whole.
Bytes bytes_taken(const ResolvedOptions& options, const MemoryPlan& plan) {
  const Bytes arena = std::max(plan.device.total(), options.device_memory_bytes);
  return plan.host.total() + (options.device == DeviceKind::cpu ? arena : 0);
}

// Memory that a host limit leaves keeps optimizer blocks, which then need not be read.
Bytes swap_cache_bytes(const ResolvedOptions& options, const PlanRequest& request) {
  if (options.swap_cache_bytes) return *options.swap_cache_bytes;
  const MemoryPlan plan = plan_memory(request);
  const Bytes needed = plan.host.total();
  if (request.host_limit <= needed) return 0;
  // It is worth having, not worth failing for: no more than this rank's share of what the machine has.
  const Bytes taken = bytes_taken(options, plan), share = machine_share(options);
  return std::min(request.host_limit - needed, share > taken ? share - taken : 0);
}

// Kernels take scratch memory per thread. A job that is planned for more ranks than this process belongs to
// is taken to share this host's cores.
int planned_threads(const ResolvedOptions& options) {
  if (options.threads > 0) return options.threads;
  if (options.launch.size == launch_info().size) return cpu_threads();
  return std::max(1, available_cpus() / options.launch.size);
}

// The model is measured on a device of more memory than any machine has.
TagBytes measured_memory(const ResolvedOptions& options, const ModelOptions& model_options, int threads) {
  try {
    return measure_model_memory(options.model, model_options, ops_factory(options.device), threads);
  } catch (const DoesNotFit&) {
    throw DoesNotFit(fmt::format(
        "one micro-batch of {} x {} tokens needs more memory than any machine has. Give a smaller "
        "--batch-size, with --accumulation for the rest.",
        options.batch.micro, options.model_options.sequence));
  }
}

// The engine does what was planned.
void settle(RunPlan& plan, MemoryPlan memory) {
  plan.request.engine.update_region_blocks = memory.update_region_blocks;
  plan.memory = std::move(memory);
}

void require_arena(const ResolvedOptions& options, const RunPlan& plan, Bytes machine_limit) {
  if (bytes_taken(options, plan.memory) <= machine_limit) return;
  refuse(plan.memory,
         fmt::format("--device-memory {} is taken at the start, and this machine has {} for each rank",
                     format_bytes(options.device_memory_bytes), format_bytes(machine_limit)),
         fmt::format("It fits with --device-memory {}MiB.", divide_up(plan.memory.device.total(), mebibyte)));
}

// To save and to load: one after the other.
Bytes bytes_of_checkpoints(const ResolvedOptions& options) {
  const CheckpointSettings& settings = options.checkpoint;
  std::string loaded = settings.resume.empty() ? settings.weights : settings.resume;
  if (settings.resume_latest)
    if (const auto found = find_checkpoints(settings.directory); !found.empty()) loaded = found.back().path;
  return std::max(checkpoint_memory_bytes, loaded.empty() ? 0 : bytes_to_load(loaded));
}

}  // namespace

namespace {

// With the units and the model's own memory in it.
void finish_plan(const ResolvedOptions& options, std::vector<HookCall> hook_calls, RunPlan& plan) {
  assign_groups(plan.request.units, options);
  for (const UnitSpec& unit : plan.request.units)
    for (const ParameterSpec& parameter : unit.parameters) plan.parameters += parameter.numel();
  plan.request.hook_calls = std::move(hook_calls);
  plan.request.engine = options.engine;
  plan.request.world_size = options.launch.size;
  plan.request.device_limit = device_limit(options);
  plan.request.host_limit = options.host_memory_bytes;
  plan.request.checkpoint_bytes = (options.checkpoint.any() ? bytes_of_checkpoints(options) : 0) +
                                  (options.checkpoint.parity > 0 ? checkpoint_rebuild_bytes : 0);
  plan.request.device_is_host = options.device == DeviceKind::cpu;
  plan.request.engine.swap_cache_bytes = swap_cache_bytes(options, plan.request);
  plan.request.cache_is_spare = !options.swap_cache_bytes;
  settle(plan, plan_memory(plan.request));
}

}  // namespace

RunPlan plan_run(const ResolvedOptions& options) {
  RunPlan plan;
  plan.request.units = make_model(options.model, options.model_options)->unit_specs();
  const int threads = planned_threads(options);
  plan.request.model_memory = measured_memory(options, options.model_options, threads);
  if (!options.model_options.recompute) {
    ModelOptions recomputed = options.model_options;
    recomputed.recompute = true;
    plan.request.model_memory_with_recompute = measured_memory(options, recomputed, threads);
  }
  finish_plan(options, record_hook_calls(options.model, options.model_options), plan);
  return plan;
}

RunPlan plan_units(const ResolvedOptions& options, std::vector<UnitSpec> units,
                   std::vector<HookCall> hook_calls) {
  RunPlan plan;
  plan.request.units = std::move(units);
  finish_plan(options, std::move(hook_calls), plan);
  return plan;
}

Bytes device_arena_bytes(const RunPlan& plan) {
  return plan.request.device_limit != 0 ? plan.request.device_limit
                                        : round_up(plan.memory.device.total(), mebibyte);
}

void require_fit(const ResolvedOptions& options, RunPlan& plan) {
  if (!plan.memory.fits())
    refuse(plan.memory, over_limits(plan.memory), smallest_change_that_fits(plan.request));
  const auto ranks = static_cast<Bytes>(options.launch.local_size);
  const Bytes share = machine_share(options);
  PlanRequest here = plan.request;
  here.machine_limit = std::max<Bytes>(1, share);
  if (MemoryPlan memory = plan_memory(here); memory.fits()) {
    settle(plan, std::move(memory));
    return require_arena(options, plan, here.machine_limit);
  }
  refuse(plan.memory,
         fmt::format("it needs {} of this machine's memory, {} of which are available",
                     format_bytes(plan.memory.machine_bytes() * ranks), format_bytes(share * ranks)),
         smallest_change_that_fits(here));
}

}  // namespace headrace

#include "src/zero/context.h"

#include <algorithm>

#include "headrace/errors.h"

namespace headrace {

std::string_view name_of(Tier tier) {
  switch (tier) {
    case Tier::device:
      return "device";
    case Tier::host:
      return "host";
    case Tier::nvme:
      return "nvme";
  }
  return "?";
}

namespace {

// Parameters that are their own master are updated where they are: the states must lie beside them.
void check_own_master(const EngineOptions& options) {
  if (options.dtype == DType::f16)
    throw UsageError(
        "--master-dtype none: fp16 parameters cannot be their own master. Use --dtype bf16 or fp32, or "
        "--master-dtype fp32.");
  if (options.optimizer_tier == Tier::nvme || options.optimizer_tier != options.parameter_tier)
    throw UsageError(
        fmt::format("--master-dtype none makes the parameters their own master, so they must lie where the "
                    "optimizer states do, on the device or in host memory; parameters are on the tier {}, "
                    "optimizer states on {}. Give --offload-optimizer and --offload-parameters the same "
                    "tier (cpu at stage 3), or --master-dtype {}.",
                    name_of(options.parameter_tier), name_of(options.optimizer_tier),
                    options.dtype == DType::bf16 ? "bf16" : "fp32"));
  if (options.optimizer_tier == Tier::host && options.persistence_numel > 0)
    throw UsageError(
        fmt::format("--master-dtype none with --persistence-numel {}: units that stay on the device are not "
                    "where the optimizer states are. Give --persistence-numel 0, or --master-dtype {}.",
                    options.persistence_numel, options.dtype == DType::bf16 ? "bf16" : "fp32"));
}

void check_states(const EngineOptions& options) {
  if (options.master_dtype == MasterDType::none) check_own_master(options);
  if (options.master_dtype == MasterDType::bf16 && options.dtype != DType::bf16)
    throw UsageError(
        fmt::format("--master-dtype bf16 is for bf16 parameters, and --dtype is {}: the master must hold "
                    "what they hold. Use --dtype bf16, or --master-dtype fp32.",
                    name_of(options.dtype)));
  (void)constants_of(options.optimizer);
}

}  // namespace

ResolvedPlacement resolve_placement(const EngineOptions& options) {
  const int stage = options.stage;
  if (stage < 0 || stage > 3)
    throw UsageError(fmt::format("stage {} does not exist; choose 0, 1, 2 or 3.", stage));
  if (options.parameter_tier != Tier::device && stage != 3)
    throw UsageError(
        fmt::format("parameters can be kept off the device at stage 3 only, but the stage is {}. Use --stage "
                    "3, or --offload-parameters "
                    "none.",
                    stage));
  if (options.gradient_tier != Tier::device && stage < 2)
    throw UsageError(
        fmt::format("gradients can be kept off the device at stages 2 and 3 only, but the stage is {}. Use "
                    "--stage 2 or 3, or "
                    "--offload-gradients none.",
                    stage));
  if (options.accumulation < 1)
    throw UsageError("gradient accumulation must be at least 1 micro-batch a step.");
  if (options.swap_buffers < 3)
    throw UsageError("swap_buffers must be at least 3: one reads, one computes, one writes.");
  if (options.parameter_buffers < 1 || options.gradient_buffers < 1)
    throw UsageError("parameter_buffers and gradient_buffers must be at least 1: blocks pass through them.");
  check_states(options);
  if (options.groups.empty()) throw UsageError("there must be at least one parameter group.");
  arguments_of(options.groups, options.optimizer,
               learning_rates_of(options.groups, options.optimizer.learning_rate));
  return {.optimizer = {.sharded = stage >= 1, .tier = options.optimizer_tier},
          .gradients = {.sharded = stage >= 2, .tier = options.gradient_tier},
          .parameters = {.sharded = stage >= 3, .tier = options.parameter_tier}};
}

EngineContext::EngineContext(Device& device_in, DeviceKernels& kernels_in, Communicator& communicator_in,
                             IoEngine* io_in, const EngineOptions& options_in)
    : device(device_in),
      kernels(kernels_in),
      communicator(communicator_in),
      io(io_in),
      options(options_in),
      placement(resolve_placement(options_in)),
      device_budget("device", device_in.info().memory_capacity_bytes),
      host_budget("host", options_in.host_memory_bytes == 0 ? ~Bytes{0} : options_in.host_memory_bytes),
      device_memory(device_in.arena(), device_budget) {
  if (placement.uses_nvme() && io == nullptr)
    throw UsageError("what is kept on NVMe needs a swap path: give --swap-path DIR.");
}

Range answered_for(const UnitPlan& unit, Range block) {
  const std::uint64_t from = std::max(block.first, unit.own.first),
                      to = std::min(block.end(), unit.own.end());
  return {from, from < to ? to - from : 0};
}

StateFormat kept_format(const EngineOptions& options) {
  StateFormat format = options.state_format();
  if (format.master == MasterDType::none)
    format.master = options.dtype == DType::bf16 ? MasterDType::bf16 : MasterDType::f32;
  return format;
}

Pin EngineContext::pin(std::span<std::byte> memory) {
  if (!options.pin_memory || memory.empty() || !device.pin(memory)) return {};
  return {device, memory};
}

// The I/O engine would meet the same limit of locked memory, and one warning of it is enough.
Pin EngineContext::pin_for_io(std::span<std::byte> memory) {
  if (!options.pin_memory || memory.empty() || !device.pin(memory)) return {};
  Pin pin(device, memory);
  if (io != nullptr) pin.attach(io->register_memory(memory));
  return pin;
}

Range EngineContext::optimizer_range(const UnitPlan& unit) const {
  return placement.optimizer.sharded ? unit.own : Range{0, unit.layout.numel};
}

UnitPlan plan_unit(UnitLayout layout, const ResolvedPlacement& placement, const EngineOptions& options,
                   int rank, int world_size) {
  UnitPlan unit;
  unit.shards = shard_ranges(layout.numel, world_size);
  unit.own = unit.shards[static_cast<std::size_t>(rank)];
  // Sharding over one rank is replication; a small unit stays whole on every rank (persistence threshold).
  const bool whole_on_device = placement.parameters.tier == Tier::device && world_size == 1;
  // On NVMe what is below one norm chunk would be a read of a page or two: it costs less memory than the read
  // costs time (FIELD-CASES A17).
  const std::uint64_t smallest = placement.parameters.tier == Tier::nvme ? norm_chunk_numel : 0;
  const bool persistent = layout.numel <= std::max(options.persistence_numel, smallest);
  unit.gather_parameters =
      placement.parameters.sharded && !whole_on_device && !persistent && layout.numel > 0;
  unit.layout = std::move(layout);
  return unit;
}

std::vector<Bytes> piece_bytes(const UnitPlan& unit, Bytes element_bytes) {
  std::vector<Bytes> pieces;
  for (const Range& shard : unit.shards) pieces.push_back(shard.numel * element_bytes);
  return pieces;
}

std::vector<OptimizerBlock> optimizer_blocks(const std::vector<UnitPlan>& units,
                                             const ResolvedPlacement& placement,
                                             const EngineOptions& options) {
  std::vector<OptimizerBlock> blocks;
  for (UnitId u = 0; u < units.size(); ++u) {
    const Range range = placement.optimizer.sharded ? units[u].own : Range{0, units[u].layout.numel};
    for (const Range& block : cut_into_blocks(range, block_numel(options))) blocks.push_back({u, block});
  }
  return blocks;
}

}  // namespace headrace

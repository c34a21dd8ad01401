#include "src/zero/updater.h"

#include <algorithm>

#include "headrace/errors.h"

namespace headrace {

UpdateStaging plan_staging(const std::vector<UnitPlan>& units, const EngineOptions& options,
                           const ResolvedPlacement& placement) {
  UpdateStaging staging;
  staging.on_device = placement.optimizer.tier == Tier::device;
  staging.move_gradient = (placement.gradients.tier == Tier::device) != staging.on_device;
  for (const UnitPlan& unit : units) {
    const bool parameters_on_device = !unit.gather_parameters || placement.parameters.tier == Tier::device;
    if (unit.layout.numel > 0 && parameters_on_device != staging.on_device) staging.move_parameters = true;
  }
  std::uint64_t largest = 0;
  for (const OptimizerBlock& block : optimizer_blocks(units, placement, options))
    largest = std::max(largest, block.range.numel);
  staging.buffer_bytes = round_up(largest * size_of(options.dtype), 64);
  if (staging.on_device) staging.visit_bytes = largest * state_bytes_per_element;
  return staging;
}

Updater::Updater(EngineContext& context, StateStore& states, GradientStore& gradients,
                 ParameterStore& parameters)
    : context_(context),
      states_(states),
      gradients_(gradients),
      parameters_(parameters),
      staging_(plan_staging(context.units, context.options, context.placement)),
      position_(states.blocks().size()),
      fetched_(states.blocks().size()) {
  if (staging_.on_device) {
    visit_buffer_ = HostBuffer(context.host_budget, MemoryTag::staging, staging_.visit_bytes);
    visit_buffer_pin_ = context.pin(visit_buffer_.memory());
  }
  const Bytes total = staging_.total_bytes();
  if (total == 0) return;
  std::byte* memory = nullptr;
  if (staging_.on_device) {
    memory = context.device_memory.persistent(MemoryTag::staging, total);
  } else {
    host_staging_ = HostBuffer(context.host_budget, MemoryTag::staging, total);
    host_staging_pin_ = context.pin(host_staging_.memory());
    memory = host_staging_.data();
  }
  if (staging_.move_gradient) {
    gradient_slots_ = allocate_slots(memory);
    memory += staging_.buffer_bytes * UpdateStaging::buffers;
  }
  if (staging_.move_parameters) parameter_slots_ = allocate_slots(memory);
}

std::vector<Updater::StagingSlot> Updater::allocate_slots(std::byte* memory) const {
  std::vector<StagingSlot> slots;
  for (std::uint32_t i = 0; i < UpdateStaging::buffers; ++i)
    slots.push_back({memory + i * staging_.buffer_bytes, {}});
  return slots;
}

bool Updater::moves_parameters(std::uint32_t block) const {
  return parameters_.on_device(block_of(block).unit) != staging_.on_device;
}

Bytes Updater::low_precision_bytes(std::uint32_t block) const {
  return block_of(block).range.numel * context_.element_bytes();
}

void Updater::run(const OptimizerArguments& arguments, bool reversed) {
  std::vector<std::uint32_t> active;  // a unit without a gradient keeps weights and moments
  for (std::uint32_t b = 0; b < states_.blocks().size(); ++b)
    if (gradients_.has_gradient(block_of(b).unit)) {
      position_[b] = static_cast<std::uint32_t>(active.size());
      active.push_back(b);
    }
  const auto plan = plan_update({.blocks = static_cast<std::uint32_t>(active.size()),
                                 .states_on_nvme = states_.tier() == Tier::nvme,
                                 .move_gradient = staging_.move_gradient,
                                 .move_parameters = staging_.move_parameters || parameters_.nvme() != nullptr,
                                 .buffers = context_.options.swap_buffers,
                                 .reversed = reversed});
  parameters_.begin_update();
  if (gradients_.nvme() != nullptr) {
    std::vector<std::uint32_t> order = active;
    if (reversed) std::reverse(order.begin(), order.end());
    gradients_.nvme()->begin_update(std::move(order));
  }
  for (UpdateStep step : plan) {
    step.block = active[step.block];
    execute(step, arguments);
  }
}

void Updater::execute(const UpdateStep& step, const OptimizerArguments& arguments) {
  switch (step.action) {
    case UpdateAction::read_state:
      states_.read(step.block);
      break;
    case UpdateAction::fetch_gradient:
      fetch_gradient(step.block);
      break;
    case UpdateAction::update:
      update(step.block, arguments);
      break;
    case UpdateAction::store_parameters:
      store_parameters(step.block);
      break;
    case UpdateAction::write_state:
      states_.write(step.block);
      break;
    case UpdateAction::reclaim_state:
      states_.reclaim(step.block);
      break;
  }
}

void Updater::fetch_gradient(std::uint32_t block) {
  const OptimizerBlock& target = block_of(block);
  StagingSlot& slot = gradient_slot(block);
  const Lane lane = staging_.on_device ? Lane::upload : Lane::download;
  GradientBlocks* nvme = gradients_.nvme();
  context_.device.wait(lane, slot.busy);
  context_.device.copy(
      lane, slot.memory,
      nvme != nullptr ? nvme->take(block, lane) : gradients_.address(target.unit, target.range.first),
      low_precision_bytes(block));
  if (nvme != nullptr) nvme->release(lane);
  fetched_[block] = context_.device.record(lane);
}

const std::byte* Updater::gradient(std::uint32_t block) {
  if (!staging_.move_gradient)
    return gradients_.nvme() != nullptr
               ? gradients_.nvme()->take(block, std::nullopt)
               : gradients_.address(block_of(block).unit, block_of(block).range.first);
  if (staging_.on_device)
    context_.device.wait(Lane::compute, fetched_[block]);
  else
    context_.device.host_wait(fetched_[block]);
  return gradient_slot(block).memory;
}

void Updater::done_with_gradient(std::uint32_t block) {
  if (!staging_.move_gradient) {
    if (gradients_.nvme() != nullptr) gradients_.nvme()->release(std::nullopt);
  } else if (staging_.on_device) {
    gradient_slot(block).busy = context_.device.record(Lane::compute);
  }
}

std::byte* Updater::low_precision_target(std::uint32_t block) {
  if (!staging_.on_device && parameters_.on_nvme(block_of(block).unit))
    return parameters_.nvme()->begin_write(block, std::nullopt);
  if (!moves_parameters(block)) return parameters_.home(block_of(block).unit, block_of(block).range.first);
  StagingSlot& slot = parameter_slot(block);
  if (staging_.on_device)
    context_.device.wait(Lane::compute, slot.busy);
  else
    context_.device.host_wait(slot.busy);
  return slot.memory;
}

void Updater::update(std::uint32_t block, const OptimizerArguments& arguments) {
  const OptimizerBlock& target = block_of(block);
  const StateBlock state = states_.state(block);
  const Bytes element = context_.element_bytes();
  const std::byte* gradient = this->gradient(block);
  std::byte* low_precision = low_precision_target(block);
  for (const GroupRun& run : group_runs(context_.units[target.unit].layout, target.range)) {
    const std::uint64_t skip = run.range.first - target.range.first;
    UpdateSpan span;
    span.state.master = reinterpret_cast<std::byte*>(state.master + skip);
    span.state.moments[0].values = reinterpret_cast<std::byte*>(state.exp_avg + skip);
    span.state.moments[1].values = reinterpret_cast<std::byte*>(state.exp_avg_sq + skip);
    span.gradient = gradient + skip * element;
    span.gradient_dtype = context_.options.dtype;
    span.low_precision = low_precision + skip * element;
    span.low_precision_dtype = context_.options.dtype;
    span.numel = run.range.numel;
    OptimizerArguments group = arguments;
    if (!run.weight_decay) group.weight_decay = 0;
    if (staging_.on_device)
      context_.kernels.update(Lane::compute, span, group);
    else if (context_.host_update)
      context_.host_update(span, group);
    else
      optimizer_update_parallel(span, group);
  }
  done_with_gradient(block);
}

void Updater::store_parameters(std::uint32_t block) {
  const bool on_nvme = parameters_.on_nvme(block_of(block).unit);
  if (!moves_parameters(block)) {
    if (on_nvme) parameters_.nvme()->end_write(std::nullopt);
    return;
  }
  const OptimizerBlock& target = block_of(block);
  StagingSlot& slot = parameter_slot(block);
  const Lane lane = staging_.on_device ? Lane::download : Lane::upload;
  if (staging_.on_device) context_.device.wait(lane, context_.device.record(Lane::compute));
  std::byte* home = on_nvme ? parameters_.nvme()->begin_write(block, lane)
                            : parameters_.home(target.unit, target.range.first);
  context_.device.copy(lane, home, slot.memory, low_precision_bytes(block));
  if (on_nvme) parameters_.nvme()->end_write(lane);
  slot.busy = context_.device.record(lane);
}

void Updater::round_block(std::uint32_t block) {
  const StateBlock state = states_.state(block);
  const std::uint64_t numel = block_of(block).range.numel;
  std::byte* target = low_precision_target(block);
  if (staging_.on_device)
    context_.kernels.round_to(Lane::compute, state.master, target, context_.options.dtype, numel);
  else
    round_to(state.master, target, context_.options.dtype, numel);
  store_parameters(block);
}

void Updater::fill_block(std::uint32_t block, const Fill& fill) {
  const OptimizerBlock& target = block_of(block);
  const StateBlock state = states_.overwrite(block);
  if (!staging_.on_device) return fill(target, state);
  context_.device.synchronize();  // the one buffer may still be on its way for the block before
  fill(target, state_block(visit_buffer_.data(), target.range.numel));
  context_.device.copy(Lane::upload, state.master, visit_buffer_.data(),
                       target.range.numel * state_bytes_per_element);
  context_.device.wait(Lane::compute, context_.device.record(Lane::upload));
}

void Updater::refresh(const Fill& fill) {
  const auto blocks = static_cast<std::uint32_t>(states_.blocks().size());
  const std::uint32_t ahead = context_.options.swap_buffers - 1;
  for (std::uint32_t b = 0; !fill && b < std::min(ahead, blocks); ++b) states_.read(b);
  for (std::uint32_t b = 0; b < blocks; ++b) {
    if (fill) {
      if (b >= ahead) states_.reclaim(b - ahead);
      fill_block(b, fill);
    }
    round_block(b);
    if (fill) {
      states_.write(b);
    } else {
      states_.reclaim(b);
      if (b + ahead < blocks) states_.read(b + ahead);
    }
  }
  for (std::uint32_t b = 0; b < blocks; ++b) states_.reclaim(b);
  context_.device.synchronize();
}

void Updater::visit(const std::function<void(const OptimizerBlock&, StateBlock)>& visit) {
  const auto blocks = static_cast<std::uint32_t>(states_.blocks().size());
  const std::uint32_t ahead = context_.options.swap_buffers - 1;
  for (std::uint32_t b = 0; b < std::min(ahead, blocks); ++b) states_.read(b);
  for (std::uint32_t b = 0; b < blocks; ++b) {
    const OptimizerBlock& target = block_of(b);
    StateBlock state = states_.state(b);
    if (staging_.on_device) {
      context_.device.copy(Lane::download, visit_buffer_.data(), state.master,
                           target.range.numel * state_bytes_per_element);
      context_.device.host_wait(context_.device.record(Lane::download));
      state = state_block(visit_buffer_.data(), target.range.numel);
    }
    visit(target, state);
    states_.reclaim(b);
    if (b + ahead < blocks) states_.read(b + ahead);
  }
}

}  // namespace headrace

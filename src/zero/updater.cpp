#include "src/zero/updater.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "headrace/errors.h"

namespace headrace {

Updater::Updater(EngineContext& context, const UpdateStaging& staging, StateStore& states,
                 GradientStore& gradients, ParameterStore& parameters, StateSnapshots* snapshots)
    : context_(context),
      states_(states),
      gradients_(gradients),
      parameters_(parameters),
      snapshots_(snapshots),
      format_(context.options.state_format()),
      kept_format_(kept_format(context.options)),
      staging_(staging),
      position_(states.blocks().size()),
      fetched_(states.blocks().size()) {
  std::iota(position_.begin(), position_.end(), 0u);
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
    memory += staging_.buffer_bytes * staging_.buffers;
  }
  if (staging_.move_parameters) parameter_slots_ = allocate_slots(memory);
}

std::vector<Updater::StagingSlot> Updater::allocate_slots(std::byte* memory) const {
  std::vector<StagingSlot> slots;
  for (std::uint32_t i = 0; i < staging_.buffers; ++i)
    slots.push_back({memory + i * staging_.buffer_bytes, {}});
  return slots;
}

bool Updater::moves_parameters(std::uint32_t block) const {
  return parameters_.on_device(block_of(block).unit) != staging_.on_device;
}

Bytes Updater::low_precision_bytes(std::uint32_t block) const {
  return block_of(block).range.numel * context_.element_bytes();
}

void Updater::run(std::span<const OptimizerArguments> arguments, bool reversed) {
  std::vector<std::uint32_t> active;  // a unit without a gradient keeps weights and moments
  update_numel_ = 0;
  region_.clear(), region_blocks_.clear();  // of an update that an error ended
  for (std::uint32_t b = 0; b < states_.blocks().size(); ++b)
    if (gradients_.has_gradient(block_of(b).unit)) {
      position_[b] = static_cast<std::uint32_t>(active.size());
      active.push_back(b);
      update_numel_ += block_of(b).range.numel;
    }
  const auto plan = plan_update({.blocks = static_cast<std::uint32_t>(active.size()),
                                 .states_on_nvme = states_.tier() == Tier::nvme,
                                 .move_gradient = staging_.move_gradient,
                                 .move_parameters = staging_.move_parameters || parameters_.nvme() != nullptr,
                                 .region_blocks = staging_.region_blocks,
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

void Updater::execute(const UpdateStep& step, std::span<const OptimizerArguments> arguments) {
  switch (step.action) {
    case UpdateAction::read_state:
      states_.read(step.block);
      break;
    case UpdateAction::fetch_gradient:
      fetch_gradient(step.block);
      break;
    case UpdateAction::join:
      join(step.block);
      break;
    case UpdateAction::update:
      update_region(arguments);
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

StateArrays Updater::arrays_of(std::uint32_t block, std::byte* states) const {
  const OptimizerBlock& target = block_of(block);
  StateArrays arrays = state_arrays(format_, states, target.range.numel);
  if (parameters_are_master()) arrays.master = parameters_.home(target.unit, target.range.first);
  return arrays;
}

UpdateSpan Updater::whole_block(std::uint32_t block) {
  const OptimizerBlock& target = block_of(block);
  const DType dtype = context_.options.dtype;
  UpdateSpan span;
  span.format = format_;
  span.state = arrays_of(block, states_.state(block));
  span.parameter_dtype = span.gradient_dtype = span.low_precision_dtype = dtype;
  span.gradient = gradient(block);
  if (!parameters_are_master()) span.low_precision = low_precision_target(block);
  span.numel = target.range.numel;
  span.first_element = context_.units[target.unit].first_element + target.range.first;
  return span;
}

void Updater::join(std::uint32_t block) {
  const OptimizerBlock& target = block_of(block);
  const UpdateSpan whole = whole_block(block);
  if (snapshots_ != nullptr) snapshots_->before_update(block);
  for (const GroupRun& run : group_runs(context_.units[target.unit].layout, target.range))
    region_.push_back({.span = part_of(whole, run.range.first - target.range.first, run.range.numel),
                       .group = run.arguments});
  region_blocks_.push_back(block);
}

void Updater::update_region(std::span<const OptimizerArguments> arguments) {
  if (staging_.on_device) {
    for (const GroupSpan& part : region_)
      context_.kernels.update(Lane::compute, part.span, arguments[part.group]);
  } else if (context_.host_update) {
    context_.host_update(region_, arguments, update_numel_);
  } else {
    optimizer_update_parallel(region_, arguments, update_numel_);
  }
  for (const std::uint32_t block : region_blocks_) done_with_gradient(block);
  region_.clear();
  region_blocks_.clear();
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

// A master that is not fp32 has the parameters' own type.
void Updater::round_block(std::uint32_t block) {
  if (parameters_are_master()) return;
  const std::byte* master = states_.state(block);
  const auto* high = reinterpret_cast<const float*>(master);
  const std::uint64_t numel = block_of(block).range.numel;
  std::byte* target = low_precision_target(block);
  const bool is_fp32 = format_.master == MasterDType::f32;
  if (staging_.on_device && is_fp32)
    context_.kernels.round_to(Lane::compute, high, target, context_.options.dtype, numel);
  else if (staging_.on_device)
    context_.device.copy(Lane::compute, target, master, low_precision_bytes(block));
  else if (is_fp32)
    round_to(high, target, context_.options.dtype, numel);
  else
    std::memcpy(target, master, low_precision_bytes(block));
  store_parameters(block);
}

StateArrays Updater::visited_arrays(std::uint32_t block) {
  return state_arrays(kept_format_, visit_buffer_.data(), block_of(block).range.numel);
}

void Updater::copy_visited(std::uint32_t block, std::byte* states, Lane lane) {
  const OptimizerBlock& target = block_of(block);
  const Bytes bytes = state_bytes(format_, target.range.numel),
              master_bytes = state_bytes(kept_format_, target.range.numel) - bytes;
  const auto copy = [&](std::byte* host, std::byte* device, Bytes count) {
    if (count == 0) return;
    if (lane == Lane::download) std::swap(host, device);
    context_.device.copy(lane, device, host, count);
  };
  copy(visit_buffer_.data() + master_bytes, states, bytes);
  if (parameters_are_master())
    copy(visit_buffer_.data(), parameters_.home(target.unit, target.range.first), low_precision_bytes(block));
}

void Updater::fill_block(std::uint32_t block, const Fill& fill) {
  std::byte* states = states_.overwrite(block);
  if (!staging_.on_device) return fill(block_of(block), arrays_of(block, states));
  context_.device.synchronize();  // the one buffer may still be on its way for the block before
  fill(block_of(block), visited_arrays(block));
  copy_visited(block, states, Lane::upload);
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

void Updater::visit(const std::function<void(const OptimizerBlock&, const StateArrays&)>& visit) {
  const auto blocks = static_cast<std::uint32_t>(states_.blocks().size());
  const std::uint32_t ahead = context_.options.swap_buffers - 1;
  for (std::uint32_t b = 0; b < std::min(ahead, blocks); ++b) states_.read(b);
  for (std::uint32_t b = 0; b < blocks; ++b) {
    std::byte* states = states_.state(b);
    if (staging_.on_device) {
      copy_visited(b, states, Lane::download);
      context_.device.host_wait(context_.device.record(Lane::download));
    }
    visit(block_of(b), staging_.on_device ? visited_arrays(b) : arrays_of(b, states));
    states_.reclaim(b);
    if (b + ahead < blocks) states_.read(b + ahead);
  }
}

}  // namespace headrace

#include "src/zero/parameter_store.h"

#include "headrace/errors.h"

namespace headrace {

GatherSchedule make_gather_schedule(const std::vector<UnitPlan>& units, const EngineOptions& options) {
  std::vector<Bytes> unit_bytes;
  for (const UnitPlan& unit : units)
    unit_bytes.push_back(unit.gather_parameters ? unit.layout.numel * size_of(options.dtype) : 0);
  return GatherSchedule(std::move(unit_bytes),
                        {.prefetch_units = options.prefetch_units, .retain = options.retain_adjacent});
}

ParameterStore::ParameterStore(EngineContext& context, ScratchStore& scratch)
    : context_(context), schedule_(make_gather_schedule(context.units, context.options)) {
  const Bytes element = context.element_bytes();
  for (const UnitPlan& unit : context.units) {
    Home home;
    if (!unit.gather_parameters) {
      home.device = context.device_memory.persistent(MemoryTag::parameters, unit.layout.numel * element);
    } else if (context.placement.parameters.tier == Tier::device) {
      home.device = context.device_memory.persistent(MemoryTag::parameters, unit.own.numel * element);
      home.first = unit.own.first;
    } else if (context.placement.parameters.tier == Tier::host) {
      home.host = HostBuffer(context.host_budget, MemoryTag::parameters, unit.own.numel * element);
      home.pin = context.pin(home.host.memory());
      home.first = unit.own.first;
    }
    homes_.push_back(std::move(home));
  }
  for (const Bytes bytes : schedule_.slot_bytes())
    slots_.push_back({.memory = context.device_memory.persistent(MemoryTag::prefetch, bytes),
                      .last_use = {},
                      .ready = {}});
  if (scratch.buffer_bytes(ScratchKind::parameters) > 0)
    nvme_ = std::make_unique<ParameterBlocks>(context, scratch);
}

void ParameterStore::begin_micro_batch() {
  schedule_.begin_micro_batch();
  ++micro_batches_;
  read_ahead();
}

void ParameterStore::end_micro_batches() {
  schedule_.end_micro_batches();
  micro_batches_ = 0;
}

// By the order of gathers that the schedule will make; after the last micro-batch of a step they would be of
// parameters that change.
void ParameterStore::read_ahead() {
  if (nvme_ == nullptr) return;
  const int begun = micro_batches_ + (schedule_.in_micro_batch() ? 0 : 1);
  const bool another = begun < context_.options.accumulation;
  nvme_->read_ahead(schedule_.upcoming(nvme_->buffers(), another));
}

void ParameterStore::begin_update() {
  if (nvme_ != nullptr) nvme_->drop_read_ahead();
}

void ParameterStore::settle() {
  if (nvme_ == nullptr) return;
  nvme_->flush();
  read_ahead();
}

bool ParameterStore::on_device(UnitId unit) const {
  return homes_[unit].device != nullptr;
}

std::byte* ParameterStore::home(UnitId unit, std::uint64_t first) const {
  const Home& home = homes_[unit];
  std::byte* base = home.device != nullptr ? home.device : home.host.data();
  return base + (first - home.first) * context_.element_bytes();
}

void ParameterStore::gather(const GatherSchedule::Gather& gather) {
  const UnitPlan& unit = context_.units[gather.unit];
  Slot& slot = slots_[gather.slot];
  Device& device = context_.device;
  const Bytes element = context_.element_bytes();
  // The own shard goes to its place in the slot over this rank's link, then the ranks exchange shards.
  const Lane lane = on_device(gather.unit) ? Lane::communicate : Lane::upload;
  device.wait(lane, slot.last_use);
  device.wait(lane, slot.ready);  // of a prefetch that was never used
  if (on_nvme(gather.unit))
    nvme_->upload(gather.unit, slot.memory);
  else if (unit.own.numel > 0)
    device.copy(lane, slot.memory + unit.own.first * element, home(gather.unit, unit.own.first),
                unit.own.numel * element);
  if (context_.communicator.size() == 1) {
    slot.ready = device.record(lane);
    return;
  }
  device.wait(Lane::communicate, lane == Lane::upload ? device.record(lane) : Event{});
  context_.communicator.all_gather(slot.memory, piece_bytes(unit, element), Traffic::all_gather,
                                   unit.layout.spec.name);
  slot.ready = device.record(Lane::communicate);
}

std::byte* ParameterStore::acquire(UnitId unit) {
  HEADRACE_CHECK(unit < homes_.size(), "unit {} of {}", unit, homes_.size());
  const std::vector<GatherSchedule::Gather> gathers = schedule_.acquire(unit);
  for (const GatherSchedule::Gather& next : gathers) gather(next);
  if (schedule_.in_micro_batch() && !gathers.empty()) read_ahead();  // else the same come next as before
  if (!context_.units[unit].gather_parameters) return homes_[unit].device;
  const Slot& slot = slots_[*schedule_.slot_of(unit)];
  context_.device.wait(Lane::compute, slot.ready);
  return slot.memory;
}

void ParameterStore::release(UnitId unit) {
  if (const auto slot = schedule_.slot_of(unit))
    slots_[*slot].last_use = context_.device.record(Lane::compute);
  schedule_.release(unit);
}

void ParameterStore::publish() {
  schedule_.invalidate();
  micro_batches_ = 0;
  const bool replicated_update = !context_.placement.optimizer.sharded;
  if (replicated_update || context_.communicator.size() == 1) return;
  const Event updated = context_.device.record(Lane::compute);
  const Event uploaded = context_.device.record(Lane::upload);
  context_.device.wait(Lane::communicate, updated);
  context_.device.wait(Lane::communicate, uploaded);
  for (UnitId u = 0; u < homes_.size(); ++u) {
    const UnitPlan& unit = context_.units[u];
    if (unit.gather_parameters || unit.layout.numel == 0) continue;
    context_.communicator.all_gather(homes_[u].device, piece_bytes(unit, context_.element_bytes()),
                                     Traffic::all_gather, unit.layout.spec.name);
  }
}

}  // namespace headrace

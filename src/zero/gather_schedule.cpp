#include "src/zero/gather_schedule.h"

#include <algorithm>
#include <numeric>

#include "headrace/errors.h"

namespace headrace {

GatherSchedule::GatherSchedule(std::vector<Bytes> unit_bytes, Options options)
    : unit_bytes_(std::move(unit_bytes)), options_(options) {
  unit_slot_.resize(unit_bytes_.size());
  build_classes();
}

// Largest first; a unit joins the class of the one before it unless that would waste more than a quarter of
// the slot.
void GatherSchedule::build_classes() {
  std::vector<UnitId> by_size;
  for (UnitId u = 0; u < unit_bytes_.size(); ++u)
    if (unit_bytes_[u] > 0) by_size.push_back(u);
  std::stable_sort(by_size.begin(), by_size.end(),
                   [&](UnitId a, UnitId b) { return unit_bytes_[a] > unit_bytes_[b]; });
  unit_class_.assign(unit_bytes_.size(), 0);
  std::vector<std::uint32_t> members;
  std::vector<Bytes> class_bytes;
  for (const UnitId u : by_size) {
    if (class_bytes.empty() || unit_bytes_[u] * 4 < class_bytes.back() * 3) {
      class_bytes.push_back(unit_bytes_[u]);
      members.push_back(0);
    }
    unit_class_[u] = static_cast<std::uint32_t>(class_bytes.size() - 1);
    ++members.back();
  }
  for (std::uint32_t c = 0; c < members.size(); ++c)
    for (std::uint32_t i = 0; i < std::min(members[c], 1 + options_.prefetch_units); ++i) {
      slots_.push_back({.size_class = c, .unit = {}, .holders = 0, .last_use = 0});
      slot_bytes_.push_back(class_bytes[c]);
    }
}

Bytes GatherSchedule::total_bytes() const {
  return std::accumulate(slot_bytes_.begin(), slot_bytes_.end(), Bytes{0});
}

std::optional<std::uint32_t> GatherSchedule::slot_of(UnitId unit) const {
  return unit_slot_[unit];
}

void GatherSchedule::begin_micro_batch() {
  if (!order_complete_ && !order_.empty()) order_complete_ = true;
  in_micro_batch_ = true;
  following_ = order_complete_;
  cursor_ = next_call_ = 0;
}

void GatherSchedule::end_micro_batches() {
  order_complete_ = order_complete_ || !order_.empty();
  in_micro_batch_ = following_ = false;
}

void GatherSchedule::note_order(UnitId unit) {
  if (!options_.record_order || !in_micro_batch_ || unit_bytes_[unit] == 0) return;
  if (!order_complete_) {
    order_.push_back(unit);
    call_of_.push_back(calls_.size());
    calls_.push_back({unit, true});
  } else if (following_ && cursor_ < order_.size() && order_[cursor_] == unit) {
    next_call_ = call_of_[cursor_++] + 1;
  } else {
    following_ = false;  // a different path (evaluation): no prefetch until the next micro-batch
  }
}

void GatherSchedule::note_release(UnitId unit) {
  if (!options_.record_order || !in_micro_batch_ || unit_bytes_[unit] == 0) return;
  if (!order_complete_)
    calls_.push_back({unit, false});
  else if (following_ && next_call_ < calls_.size() && !calls_[next_call_].acquire &&
           calls_[next_call_].unit == unit)
    ++next_call_;
}

// Position of the unit's next acquire in the recorded order; `never` when it is not known.
std::uint64_t GatherSchedule::next_use(UnitId unit) const {
  if (!following_) return never;
  for (std::size_t i = cursor_; i < order_.size(); ++i)
    if (order_[i] == unit) return i;
  return never;
}

std::optional<std::uint32_t> GatherSchedule::find_slot(UnitId unit, std::uint64_t use) const {
  std::optional<std::uint32_t> best;
  std::uint64_t best_use = 0;
  for (std::uint32_t s = 0; s < slots_.size(); ++s) {
    const Slot& slot = slots_[s];
    if (slot.size_class != unit_class_[unit] || slot.holders > 0) continue;
    // An empty slot is best; among equals the one used longest ago, so that slots alternate.
    const std::uint64_t slot_use = slot.unit ? std::min(next_use(*slot.unit), never - 1) : never;
    const bool later =
        !best || slot_use > best_use || (slot_use == best_use && slot.last_use < slots_[*best].last_use);
    if (later) best = s, best_use = slot_use;
  }
  if (best && best_use > use) return best;
  return std::nullopt;
}

void GatherSchedule::fill(std::uint32_t slot, UnitId unit) {
  if (slots_[slot].unit) unit_slot_[*slots_[slot].unit].reset();
  slots_[slot].unit = unit;
  slots_[slot].last_use = ++clock_;
  unit_slot_[unit] = slot;
}

std::vector<GatherSchedule::Gather> GatherSchedule::acquire(UnitId unit) {
  note_order(unit);
  std::vector<Gather> gathers;
  if (unit_bytes_[unit] > 0) {
    if (!unit_slot_[unit]) {
      // The unit is needed now: any slot that nobody holds will do, whatever its next use.
      auto slot = find_slot(unit, 0);
      if (!slot)
        for (std::uint32_t s = 0; s < slots_.size() && !slot; ++s)
          if (slots_[s].size_class == unit_class_[unit] && slots_[s].holders == 0) slot = s;
      if (!slot)
        throw UsageError(
            "more units of one size are held at once than there are gather buffers; raise prefetch_units by "
            "the number of "
            "units that a module acquires together");
      fill(*slot, unit);
      gathers.push_back({unit, *slot});
    }
    Slot& slot = slots_[*unit_slot_[unit]];
    ++slot.holders;
    slot.last_use = ++clock_;
  }
  prefetch(gathers);
  return gathers;
}

void GatherSchedule::prefetch(std::vector<Gather>& gathers) {
  if (!following_) return;
  std::uint32_t ahead = 0;
  for (std::size_t i = cursor_; i < order_.size() && ahead < options_.prefetch_units; ++i) {
    const UnitId unit = order_[i];
    ++ahead;
    if (unit_slot_[unit]) continue;
    const auto slot = find_slot(unit, i);
    if (!slot) continue;
    fill(*slot, unit);
    gathers.push_back({unit, *slot});
  }
}

void GatherSchedule::release(UnitId unit) {
  note_release(unit);
  if (unit_bytes_[unit] == 0) return;
  HEADRACE_CHECK(unit_slot_[unit] && slots_[*unit_slot_[unit]].holders > 0,
                 "unit {} is released but not held", unit);
  Slot& slot = slots_[*unit_slot_[unit]];
  if (--slot.holders == 0 && !options_.retain) {
    slot.unit.reset();
    unit_slot_[unit].reset();
  }
}

bool GatherSchedule::can_acquire(UnitId unit) const {
  return unit_bytes_[unit] == 0 || unit_slot_[unit] ||
         std::any_of(slots_.begin(), slots_.end(), [&](const Slot& slot) {
           return slot.size_class == unit_class_[unit] && slot.holders == 0;
         });
}

std::vector<UnitId> GatherSchedule::upcoming(std::size_t most, bool another_micro_batch) const {
  std::vector<UnitId> units;
  if (!order_complete_ || (in_micro_batch_ && !following_)) return units;
  GatherSchedule ahead = *this;
  if (!in_micro_batch_) ahead.begin_micro_batch();
  for (int micro_batch = 0; micro_batch < (another_micro_batch ? 2 : 1); ++micro_batch) {
    if (micro_batch > 0) ahead.begin_micro_batch();
    while (ahead.next_call_ < calls_.size()) {
      if (units.size() >= most) return units;
      const Call& call = calls_[ahead.next_call_];
      if (call.acquire) {
        if (!ahead.can_acquire(call.unit)) return units;  // more are held than when the order was recorded
        for (const Gather& gather : ahead.acquire(call.unit)) units.push_back(gather.unit);
      } else if (ahead.held(call.unit)) {
        ahead.release(call.unit);
      } else {
        ++ahead.next_call_;  // released earlier than recorded
      }
    }
  }
  return units;
}

void GatherSchedule::invalidate() {
  for (Slot& slot : slots_) {
    HEADRACE_CHECK(slot.holders == 0, "a unit is still held while its parameters change");
    slot.unit.reset();
  }
  for (auto& slot : unit_slot_) slot.reset();
  end_micro_batches();
}

}  // namespace headrace

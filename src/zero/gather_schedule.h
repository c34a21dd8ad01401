// Which gather buffer holds which unit, and which unit to gather next: the policy of acquire, release and
// prefetch as a pure value, with no memory and no threads. The engine executes its decisions; the planner
// counts them.
//
// Buffers ("slots") come in classes of similar size; a class holds 1 + prefetch slots, or one a unit if that
// is fewer, so the bytes do not grow with depth. The order of acquires is recorded in the first micro-batch;
// resident units are no part of it, so that thousands of them make no decision dearer. Decisions depend on
// the order of calls alone, never on timing: every rank makes the same ones.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "headrace/bytes.h"
#include "headrace/units.h"

namespace headrace {

class GatherSchedule {
 public:
  struct Options {
    std::uint32_t prefetch_units = 1;
    bool retain = true;        // a released unit stays valid until its slot is needed
    bool record_order = true;  // learn the order of acquires and prefetch by it
  };
  // unit_bytes[u]: the gathered size of unit u; 0 for a unit that is resident and never gathered.
  GatherSchedule(std::vector<Bytes> unit_bytes, Options options);

  struct Gather {
    UnitId unit = 0;
    std::uint32_t slot = 0;
  };
  // What must be gathered now, in this order: the unit itself if it is not valid, then prefetches.
  std::vector<Gather> acquire(UnitId unit);
  void release(UnitId unit);
  // The next acquire is the first of a micro-batch.
  void begin_micro_batch();
  // What follows belongs to no micro-batch (a step, an evaluation): it is neither recorded nor prefetched
  // for.
  void end_micro_batches();
  // Parameters changed: nothing that is gathered is valid. No unit may be held.
  void invalidate();

  // What acquires will gather next, in this order, if they and the releases between them come as recorded: at
  // most `most` units, to the end of the micro-batch or, when another one follows on the same parameters,
  // beyond it. Outside micro-batches: from the start of the next one. Empty where no order is known.
  std::vector<UnitId> upcoming(std::size_t most, bool another_micro_batch) const;
  bool in_micro_batch() const { return in_micro_batch_; }
  // Recorded acquires and releases of one micro-batch: what a forecast goes through.
  std::size_t recorded_calls() const { return calls_.size(); }

  std::optional<std::uint32_t> slot_of(UnitId unit) const;
  const std::vector<Bytes>& slot_bytes() const { return slot_bytes_; }
  Bytes total_bytes() const;

 private:
  static constexpr std::uint64_t never = ~std::uint64_t{0};
  struct Slot {
    std::uint32_t size_class = 0;
    std::optional<UnitId> unit;  // valid contents
    std::uint32_t holders = 0;
    std::uint64_t last_use = 0;
  };
  struct Call {
    UnitId unit = 0;
    bool acquire = true;
  };
  void build_classes();
  void note_order(UnitId unit);
  void note_release(UnitId unit);
  bool held(UnitId unit) const { return unit_slot_[unit] && slots_[*unit_slot_[unit]].holders > 0; }
  bool can_acquire(UnitId unit) const;
  std::uint64_t next_use(UnitId unit) const;
  // A slot of the unit's class that may be overwritten for a use at position `use`; none if all are needed
  // sooner.
  std::optional<std::uint32_t> find_slot(UnitId unit, std::uint64_t use) const;
  void fill(std::uint32_t slot, UnitId unit);
  void prefetch(std::vector<Gather>& gathers);

  std::vector<Bytes> unit_bytes_;
  Options options_;
  std::vector<std::uint32_t> unit_class_;
  std::vector<Bytes> slot_bytes_;
  std::vector<Slot> slots_;
  std::vector<std::optional<std::uint32_t>> unit_slot_;
  std::vector<UnitId> order_;         // of one micro-batch, units that are gathered alone
  std::size_t cursor_ = 0;            // position in order_
  std::vector<Call> calls_;           // order_ with the releases between
  std::vector<std::size_t> call_of_;  // per entry of order_: its position in calls_
  std::size_t next_call_ = 0;         // position in calls_
  bool order_complete_ = false;       // a whole micro-batch was recorded
  bool in_micro_batch_ = false;
  bool following_ = false;  // acquires match order_ so far
  std::uint64_t clock_ = 0;
};

}  // namespace headrace

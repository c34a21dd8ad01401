// The low-precision parameters: where they rest (device, host or NVMe, whole or this rank's shard) and how a
// unit becomes whole on the device. Resident units have one address for the whole run; the others pass
// through gather slots.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "src/zero/context.h"
#include "src/zero/gather_schedule.h"
#include "src/zero/parameter_blocks.h"

namespace headrace {

// Sizes of the gather slots: the unit's bytes where it is gathered, else 0.
GatherSchedule make_gather_schedule(const std::vector<UnitPlan>& units, const EngineOptions& options);

class ParameterStore {
 public:
  ParameterStore(EngineContext& context, ScratchStore& scratch);

  void begin_micro_batch();
  void end_micro_batches();
  // The unit's flat vector, valid for the compute lane from now until release.
  std::byte* acquire(UnitId unit);
  void release(UnitId unit);

  // Where this rank's part of the low-precision parameters is written by the update: an address for the flat
  // element `first`, in device memory when on_device(unit), else in host memory.
  bool on_device(UnitId unit) const;
  // Where it is on NVMe instead, the block is written through a buffer of nvme(), after begin_update().
  bool on_nvme(UnitId unit) const { return nvme_ != nullptr && context_.units[unit].gather_parameters; }
  ParameterBlocks* nvme() { return nvme_.get(); }
  void begin_update();
  std::byte* home(UnitId unit, std::uint64_t first) const;
  // After an update: resident units collect the other ranks' shards, gathered copies are dropped. Enqueues
  // only.
  void publish();
  // Once all lanes are idle: the update's blocks are on NVMe, those of the next micro-batch are on their way.
  void settle();

 private:
  struct Home {
    std::byte* device = nullptr;  // whole unit when resident, else own shard
    HostBuffer host;              // own shard
    Pin pin;
    std::uint64_t first = 0;  // flat index of the first element held
  };
  struct Slot {
    std::byte* memory = nullptr;
    Event last_use;  // of the compute lane
    Event ready;     // the gathered unit is whole
  };
  void gather(const GatherSchedule::Gather& gather);
  void read_ahead();

  EngineContext& context_;
  GatherSchedule schedule_;
  std::vector<Home> homes_;
  std::vector<Slot> slots_;
  std::unique_ptr<ParameterBlocks> nvme_;  // null when no unit's home is NVMe
  int micro_batches_ = 0;                  // begun since the last update
};

}  // namespace headrace

// The order of one optimizer step over all blocks, as a printable value: what is read, updated and written
// when, with a bounded number of buffers, reads first. One executor (updater.h) runs it for every combination
// of tiers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "headrace/engine.h"

namespace headrace {

enum class UpdateAction : std::uint8_t {
  read_state,        // start reading the block's master and moments from NVMe into a buffer
  fetch_gradient,    // start moving the block's gradient to where the update runs
  join,              // wait for both; the block is part of the region that is updated next
  update,            // run the optimizer over the region, of which this block is the last
  store_parameters,  // start moving the low-precision parameters to their tier
  write_state,       // start writing the new master and moments to NVMe
  reclaim_state,     // wait for that write; its buffer is free again
};
std::string_view name_of(UpdateAction action);

struct UpdateStep {
  UpdateAction action;
  std::uint32_t block = 0;
  bool operator==(const UpdateStep&) const = default;
};

struct UpdatePlanOptions {
  std::uint32_t blocks = 0;
  bool states_on_nvme = false;
  bool move_gradient = false;    // gradients live elsewhere than the update runs
  bool move_parameters = false;  // parameters live elsewhere than the update runs
  // Blocks that one region updates: those whose positions have the same quotient, in either direction, so
  // that neighbours in memory meet. Their gradients and parameters move together, those of the next region
  // while this one is updated. 1 where states are on NVMe.
  std::uint32_t region_blocks = 1;
  std::uint32_t buffers =
      8;  // state buffers, at least 3: half of them read ahead, one is updated, the rest write
  bool reversed = false;  // last block first: alternates from step to step
};
std::vector<UpdateStep> plan_update(const UpdatePlanOptions& options);
std::string to_string(const std::vector<UpdateStep>& plan);

}  // namespace headrace

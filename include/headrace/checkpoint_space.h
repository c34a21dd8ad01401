// What checkpoints take of a disk, before the first byte of one is written.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "headrace/bytes.h"
#include "headrace/communicator.h"
#include "headrace/device.h"
#include "headrace/optimizer_state.h"
#include "headrace/units.h"

namespace headrace {

// Of all files of one, of all ranks: the states, and at most what names and describes them. `states` as a
// checkpoint keeps them, their master never `none`.
Bytes checkpoint_bytes(std::span<const UnitSpec> units, const StateFormat& states, int world_size,
                       std::uint32_t parity = 0);

// Of a slice, at most: in its file's header or in the manifest.
inline constexpr Bytes slice_description_bytes = 128;

// Throws DoesNotFit on every rank, with the figures and what to do, where the ranks of one host that write to
// one file system need more than it has free for this user. The folder is there. A collective.
struct CheckpointSpaceNeed {
  std::string directory;        // --checkpoint-dir
  Bytes bytes = 0;              // that this rank writes
  std::uint64_t keep_last = 0;  // CheckpointOptions
};
void require_checkpoint_space(const CheckpointSpaceNeed& need, Communicator& communicator, Device& device);

}  // namespace headrace

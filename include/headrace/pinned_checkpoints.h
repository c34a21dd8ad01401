// Checkpoints that are pinned in swap stores, as a user deals with them: room for them, copies of files, and
// versions that nobody needs any more.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "headrace/bytes.h"
#include "headrace/io_engine.h"

namespace headrace {

// UsageError where the swap store of a run that goes on in it cannot keep this many checkpoints of the folder
// and one more, with what to do.
void require_room_for_pins(const std::vector<std::string>& store_directories, const std::string& directory,
                           std::uint64_t keep_last);

// UsageError where that store keeps several checkpoints of the folder and none is there, as when it is not
// mounted: a run that saves there would release them.
void require_folder_of_pins(const std::vector<std::string>& store_directories, const std::string& directory);

// Writes a checkpoint anew, of files, from one of either kind; complete or not there. `folder` is new or
// empty. DoesNotFit before anything is written where the disk has too little room.
struct CopiedCheckpoint {
  std::uint64_t files = 0;
  Bytes bytes = 0;
};
CopiedCheckpoint copy_checkpoint(const std::string& checkpoint, const std::string& folder, IoEngine& io);

// Buffers of loading a checkpoint, in host memory; 0 where that cannot be told.
Bytes bytes_to_load(const std::string& checkpoint);

// Releases the version in the swap store of every rank in these swap paths. Their checkpoint, if there still
// is one, cannot be loaded afterwards. UsageError where no store has it, or a job uses one.
struct ReleasedPin {
  std::uint64_t stores = 0;
};
ReleasedPin release_pin(const std::vector<std::string>& swap_paths, const std::string& name, IoEngine& io);

}  // namespace headrace

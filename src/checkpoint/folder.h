// The folder of a run's checkpoints: its names, how one is made visible, and which are removed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/checkpoint.h"

namespace headrace {

// Holds the folder against other jobs. UsageError where one has it.
Fd lock_checkpoints(const std::string& directory);
// Holds the folder that a checkpoint lies in, or is to lie in, against jobs that save there. UsageError
// where one does, with what can be done `instead`. Nothing is held where no job ever saved.
Fd lock_beside(const std::string& path, std::string_view instead);
// Holds one checkpoint against another repair, and its folder, where jobs save to it, against them.
// UsageError.
struct RepairLocks {
  Fd directory, checkpoint;
};
RepairLocks lock_for_repair(const std::string& path);

// Of "step-00001200" and no other spelling.
std::optional<std::uint64_t> step_of_name(const std::string& name);
bool is_name_of_partial(const std::string& name);

// What lies there: the complete ones by sequence, those without a good manifest and what saves left half
// done, by name.
struct CheckpointFolder {
  std::vector<FoundCheckpoint> found;
  std::vector<std::string> damaged, partial;
};
CheckpointFolder look_into(const std::string& directory);  // IoError where it cannot be listed
// For those who only report: nothing then, and the reason is told by whoever opens it as what else it may be.
CheckpointFolder seen_of(const std::string& directory);

// DIR/step-N.partial: where a checkpoint is until it is visible.
std::string partial_checkpoint(const std::string& directory, std::uint64_t step);
// Makes it, empty; what earlier saves left half done is removed.
void begin_checkpoint(const std::string& directory, std::uint64_t step);
// The manifest, with a copy of it where wanted, then the name: from then on it is visible. One of the same
// step is replaced in one rename.
void publish_checkpoint(const std::string& directory, std::uint64_t step, const std::string& manifest,
                        bool with_copy);
// The rename on the disk, and the file `latest`; removes the one that was replaced.
void name_latest(const std::string& directory, std::uint64_t step);
// A small file, whole or not there.
void write_checkpoint_text(const std::string& folder, std::string_view name, const std::string& text);
// Removes a folder that is not visible; what cannot be removed stays.
void abandon_checkpoint(const std::string& partial) noexcept;
// Removes the oldest of more than `keep_last` (0: none). Neither a kill nor the loss of
// power leaves half of one visible.
void rotate_checkpoints(const std::string& directory, std::uint64_t keep_last);

}  // namespace headrace

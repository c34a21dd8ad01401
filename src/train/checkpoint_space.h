// Whether a run's checkpoints fit the disk that they are to be written to, before the run begins.
#pragma once

#include <cstdint>

#include "headrace/bytes.h"
#include "headrace/train.h"

namespace headrace {

// What is known of a run's saves when it begins.
struct SavePlan {
  std::uint64_t saves = 0;      // of this run
  std::uint64_t keep_last = 0;  // 0: all
  Bytes each = 0;               // on this disk
  std::vector<Bytes> existing;  // those that are there, the oldest first
};
// The most that the disk needs beside what lies there now, at any save but those after the first `saves`. A
// new one is whole before an old one goes.
Bytes most_needed(const SavePlan& plan, std::uint64_t saves);

// All files of one checkpoint of all ranks, at most.
Bytes bytes_of_checkpoint(const ResolvedOptions& options, const RunPlan& plan);

// Throws DoesNotFit where checkpoint_space() finds a shortage, and warns of what will run out.
void require_room_for_checkpoints(const ResolvedOptions& options, const RunPlan& plan, bool warn);

}  // namespace headrace

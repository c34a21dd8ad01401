// What a run's options say of its checkpoints.
#pragma once

#include <cstdint>
#include <string>

namespace headrace {

// What a run saves, and what it begins with.
struct CheckpointSettings {
  std::string directory;                               // empty: nothing is saved
  std::uint64_t every = 0, keep_last = 0, parity = 0;  // 0: at the end alone; all; no file may be lost
  bool asynchronous = false;                           // beside the steps
  bool pin = false;                                    // in the swap store, without a copy
  bool resume_latest = false, allow_fresh = false;
  bool overwrite = false;       // a new run saves among those of an earlier one
  std::string resume, weights;  // a checkpoint's path, or empty
  // Of a run with resume_swap: one that its swap stores keep, and what they call it.
  std::string go_back_to, pin_to_go_back_to;
  bool any() const { return resume_latest || !(resume + weights + directory).empty(); }
};

}  // namespace headrace

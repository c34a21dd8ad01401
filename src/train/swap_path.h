// The folders of a run's swap stores: what may be in them before a run, and what is left of an earlier one.
#pragma once

#include <string>
#include <vector>

#include "headrace/swap_paths.h"
#include "headrace/train.h"

namespace headrace {

// UsageError when a path cannot be used by this run; nothing is created. A resumed run goes on without as
// many as parity makes up for.
void check_swap_path(const ResolvedOptions& options);

// Without parity blocks are placed in proportion to what the paths move, measured now unless it was given or
// is settled by the store that is resumed.
void place_by_measured_rates(const ResolvedOptions& options, RunPlan& plan, IoEngine* io);

// Refuses stores of a live job, those of an earlier run that is not to be replaced, and a disk too small for
// all ranks of this host, before any rank replaces what is there. `checkpoint` is what the run begins with,
// or empty. A collective.
void claim_swap_path(const ResolvedOptions& options, const RunPlan& plan, const std::string& checkpoint,
                     Communicator& communicator);

// Paths that work and do not do what they are given for: in memory, or parity on one drive.
void warn_of_poor_paths(const ResolvedOptions& options);
// An earlier run of more ranks leaves stores that no run can continue once rank 0's is replaced.
void remove_stores_of_further_ranks(const ResolvedOptions& options);

// What the stores of this host's ranks will take in each path, and what an earlier run's there take now.
std::vector<PathSpace> swap_path_spaces(const ResolvedOptions& options, const RunPlan& plan);

// Bytes that the files below the folders take on the disk, but for locks, which are empty without an owner.
Bytes disk_bytes_below(const std::vector<std::string>& paths);
// Of the stores of all its ranks that this host sees; what else is in the swap paths is not the run's.
Bytes disk_bytes_of_run(const ResolvedOptions& options);
std::string path_list(const std::vector<std::string>& paths);  // "/a, /b"

// UsageError when `path` (of the flag `what`) lies in a folder of data: it would be read as text.
void refuse_inside_data(const ResolvedOptions& options, const std::string& what, const std::string& path);

}  // namespace headrace

// The native trainer: plans a run, refuses what does not fit before anything is created, trains, reports.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "headrace/config.h"
#include "headrace/planner.h"

namespace headrace {

// A run as the planner sees it. Allocates nothing large.
struct RunPlan {
  PlanRequest request;
  MemoryPlan memory;
  std::uint64_t parameters = 0;
};
RunPlan plan_run(const ResolvedOptions& options);
// Of a model that the caller has, whose own memory is not counted.
RunPlan plan_units(const ResolvedOptions& options, std::vector<UnitSpec> units,
                   std::vector<HookCall> hook_calls);

// Throws DoesNotFit with the ledger and the smallest change that fits, when the plan is over a limit given or
// over the memory that this machine has available; makes the regions of its update smaller where that is
// enough.
void require_fit(const ResolvedOptions& options, RunPlan& plan);

// Whether the disks of the swap paths hold the stores of all ranks of this host, an earlier run's space
// included.
struct SwapSpace {
  std::string shortage;              // what is missing where, and what to do; empty: nothing
  std::vector<std::string> unknown;  // paths that cannot be looked at from here
};
SwapSpace swap_space(const ResolvedOptions& options, const RunPlan& plan);

// What a run's checkpoints take of their disk, beside what lies there now; the swap stores' share is theirs.
struct CheckpointSpace {
  Bytes bytes = 0;                 // of one, of all ranks
  std::string shortage;            // the run cannot do what it is told: what is missing, and what to do
  std::string warning;             // it can for a while
  std::optional<Bytes> available;  // for them, on the disk; none: that cannot be told
};
CheckpointSpace checkpoint_space(const ResolvedOptions& options, const RunPlan& plan);

// Bytes that the device's arena gets: the limit, or what the plan needs when none is given.
Bytes device_arena_bytes(const RunPlan& plan);

// Trains to the end or until a signal asks to stop. Results go to stdout, progress to stderr. Returns the
// exit status: 0, or 130 after a stop. Errors are exceptions; in a job of several ranks an error ends the
// process here, because the other ranks may be waiting for this one.
int train(const ResolvedOptions& options);

Bytes peak_rss_bytes();  // most that this process has had resident (VmHWM)

// Whether the run of this identity (TrainingState::run) read text, as bytes; false where it does not say.
bool trained_on_text(const std::string& run);

// Writes the one paragraph of an error to stderr and returns the exit status of its kind. In a job, rank 0
// speaks at once and the others only if the job is still there a moment later: the same error is not printed
// once a rank.
int report_error(const std::exception& error, const LaunchInfo& launch);

}  // namespace headrace

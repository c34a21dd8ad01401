// Which checkpoint a run begins with, and how it saves its own.
#pragma once

#include <string>

#include "headrace/checkpoint.h"
#include "headrace/config.h"

namespace headrace {

// The path of the one to load; empty where none was asked for, or there is none yet and that was allowed.
// UsageError where it is not there.
std::string checkpoint_to_load(const ResolvedOptions& options);
// The types in which a checkpoint of this run keeps its states.
StateFormat kept_states(const ResolvedOptions& options);
// What loading it into this run's types of states changes: a warning where bits are lost.
void report_conversions(const ResolvedOptions& options, const CheckpointFacts& stored);
// Before anything is replaced: UsageError where another job saves in the folder; a warning where a new run
// will replace what an earlier one saved.
void claim_checkpoints(const ResolvedOptions& options, bool goes_on);
CheckpointOptions checkpoint_options(const ResolvedOptions& options);

}  // namespace headrace

// Which checkpoint a run begins with, and how it saves its own.
#pragma once

#include <optional>
#include <string>

#include "headrace/checkpoint.h"
#include "headrace/config.h"

namespace headrace {

// The path of the one to load; empty where none was asked for, or there is none yet and that was allowed.
// UsageError where it is not there.
std::string checkpoint_to_load(const ResolvedOptions& options);
// What loading it into this run's types of states changes, a warning where bits are lost; and whether the
// run saves without the parity that it has.
void report_conversions(const ResolvedOptions& options, const CheckpointFacts& stored);
// UsageError where --checkpoint-dir is no place for them: a swap path, or within a checkpoint.
void check_checkpoint_directory(const ResolvedOptions& options);
// Before anything is replaced: UsageError where the folder cannot be written, where another job saves in it,
// and where the run would mix with what another one saved, unless --overwrite-checkpoints asks for it.
// `goes_on_from`: the checkpoint that a run goes on from; empty: its swap store; none: it is a new run.
void claim_checkpoints(const ResolvedOptions& options, const std::optional<std::string>& goes_on_from);
CheckpointOptions checkpoint_options(const ResolvedOptions& options);

}  // namespace headrace

// Runs that went on to their end, or went on for long, and whose result is of no use: each is an Error that
// says what happened and what to do. The same on every rank.
#pragma once

#include "src/train/training_loop.h"

namespace headrace {

// Where the gradient is not finite for so many steps in a row that no later one can help.
void refuse_endless_skipping(const EngineOptions& options, const RunOutcome& outcome, std::uint64_t step);
// A run that changed nothing must not look like one that did.
void refuse_skipping_all(const Session& session, const RunOutcome& outcome);
// A run whose last losses are not finite has lost its weights, whatever was committed.
void refuse_lost_weights(const ResolvedOptions& options, const RunOutcome& outcome, std::uint64_t step);

}  // namespace headrace

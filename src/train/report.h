// What a person reads: where everything lives before the run (stderr), what came out after it (stdout).
#pragma once

#include <string>

#include "src/train/session.h"
#include "src/train/training_loop.h"

namespace headrace {

std::string start_report(const Session& session);
std::string end_report(const Session& session, const RunOutcome& outcome, const RunSummary& summary);

// "10.8M", "124M", "7.5B".
std::string format_count(std::uint64_t count);

}  // namespace headrace

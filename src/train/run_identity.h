// What makes two runs the same run: stored with every commit, compared before a run is continued.
#pragma once

#include <string>
#include <string_view>

#include "headrace/config.h"
#include "headrace/data.h"

namespace headrace {

// JSON text. Paths are not in it: data and stores may be moved between a stop and the resume.
std::string run_identity(const ResolvedOptions& options, const Tokens& data);

// UsageError when `stored` and `current` would not read the same samples: the data position of one means
// nothing to the other. Otherwise one sentence on what else differs, empty when nothing does.
// `place` is where the stored one was found, and `resume` the flag that asked for it ("--resume swap").
struct RunDifference {
  std::string text;
  bool longer_only = false;  // the same schedule over another number of steps
};
RunDifference compare_runs(const std::string& stored, const std::string& current, std::string_view resume,
                           const std::string& place);

}  // namespace headrace

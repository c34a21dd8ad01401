// The run that swap paths hold already, before another one starts on them.
#pragma once

#include <string>
#include <vector>

#include "headrace/train.h"

namespace headrace {

// The swap paths of the store that a rank's folders belong to, against those that were given.
struct StorePaths {
  std::vector<std::string> all;      // in the store's order; those that were given as they were called
  std::vector<std::string> missing;  // of `all`, not given
  std::vector<std::string> others;   // given, and not of `all`
};
StorePaths store_paths(const std::vector<std::string>& rank_folders);  // empty where no folder holds a store

// Starting anew deletes what an earlier run has committed, whether it can be read or not: a UsageError that
// says what that is, unless --overwrite-swap asks for it. What the run that `checkpoint` (or none) goes on
// with committed up to the step of it is nothing that would be missed.
void refuse_to_replace(const ResolvedOptions& options, const std::string& checkpoint);

}  // namespace headrace

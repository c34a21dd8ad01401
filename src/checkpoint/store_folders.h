// Which folders below the given swap paths belong to one store.
#pragma once

#include <string>
#include <vector>

namespace headrace {

// The folders of each rank's store, in the order of the ranks. Throws UsageError when there is no store, or a
// path cannot be read.
std::vector<std::vector<std::string>> store_folders(const std::vector<std::string>& paths);

}  // namespace headrace

#include <fmt/format.h>

#include "headrace/shell_words.h"
#include "headrace/swap_paths.h"

namespace headrace {

std::string repair_command(const std::vector<std::string>& lost, const std::vector<std::string>& all) {
  return fmt::format("{}headrace inspect --repair {}",
                     lost.empty() ? "" : fmt::format("mkdir -p {} && ", shell_words(lost)), shell_words(all));
}

}  // namespace headrace

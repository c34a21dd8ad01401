#include <fmt/format.h>

#include <algorithm>
#include <cerrno>

#include "headrace/files.h"
#include "headrace/shell_words.h"
#include "headrace/swap_paths.h"

namespace headrace {
namespace {

bool is_refusal(int code) {
  return code == EACCES || code == EPERM;
}

}  // namespace

std::string repair_command(const std::vector<std::string>& lost, const std::vector<std::string>& all) {
  std::vector<std::string> absent = lost;
  std::erase_if(absent, files::folder_exists);
  return fmt::format("{}headrace inspect --repair {}",
                     absent.empty() ? "" : fmt::format("mkdir -p {} && ", shell_words(absent)),
                     shell_words(all));
}

std::string how_to_bring_back(const std::vector<SwapPath>& lost, const std::vector<std::string>& all) {
  using State = SwapPath::State;
  const bool one = lost.size() == 1;
  if (std::ranges::any_of(lost, [](const SwapPath& path) { return is_refusal(path.code); }))
    return "look at it as the user who runs the job, or have that user allow it (chmod)";
  if (std::ranges::any_of(lost, [](const SwapPath& path) { return path.state == State::foreign; }))
    return "give the folder that is wanted; where that is gone for good, give an empty one in its place to "
           "`headrace inspect --repair`, which rebuilds it there";
  std::vector<std::string> folders;
  for (const SwapPath& path : lost) folders.push_back(path.directory);
  std::string text;
  if (std::ranges::any_of(lost, [](const SwapPath& path) { return path.state == State::missing; }))
    text = one ? "mount its drive; where that is gone for good, "
               : "mount their drives; where those are gone for good, ";
  return text + fmt::format("`{}` rebuilds {}", repair_command(folders, all), one ? "it" : "them");
}

}  // namespace headrace

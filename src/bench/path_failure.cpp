#include "src/bench/path_failure.h"

#include <cerrno>
#include <string_view>

namespace headrace {
namespace {

std::string_view advice_for(int code) {
  switch (code) {
    case ENOSPC:
      return "Its file system could not keep the space for the file, or others have taken it: free some, or "
             "give a smaller --file-size.";
    case EDQUOT:
      return "Your quota there is used up: free some space, or give a smaller --file-size.";
    case EIO:
      return "The drive or its link has failed: look at the kernel's log and at the drive's health "
             "(nvme smart-log, smartctl), and keep no data there before the cause is found.";
    default:
      return "Look at the kernel's log for the cause.";
  }
}

std::string describe(const std::string& folder, const IoError& error) {
  std::string text = error.what();
  if (const std::size_t at = text.find(error.path()); !error.path().empty() && at != std::string::npos)
    text.replace(at, error.path().size(), "the benchmark's file");
  return fmt::format("{}: {}{} {}", folder, text, text.ends_with('.') ? "" : ".", advice_for(error.code()));
}

}  // namespace

PathFailure::PathFailure(std::size_t file, const std::string& folder, const IoError& error)
    : Error(describe(folder, error)), file_(file), code_(error.code()) {}

bool PathFailure::is_full() const {
  return code_ == ENOSPC || code_ == EDQUOT;
}

}  // namespace headrace

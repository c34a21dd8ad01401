#include "headrace/errors.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

namespace headrace {
namespace {

// Beside the errno's own words. Of EIO, whoever knows what is lost with it says what to do.
std::string_view meaning_of(int code) {
  switch (code) {
    case EAGAIN:
      return ", each of the times that it was tried again: the kernel is short of memory or of places in the "
             "device's queue. Free some memory, or keep fewer requests in flight (--io-depth).";
    case ECANCELED:
      return ": the kernel could start no thread for it, however often it was tried (raise the limit of "
             "threads: ulimit -u, pids.max), or it belongs to the process from which this one was forked, "
             "which alone can wait for it.";
    case ENOSPC:
      return ". Free some space on its file system.";
    case EDQUOT:
      return ". Delete some of this user's files there, or have the quota raised (quota -s shows it).";
    default:
      return "";
  }
}

// Empty of a call that moves no bytes.
std::string range_text(std::uint64_t offset, std::uint64_t length) {
  if (length > 0) return fmt::format(" at offset {} ({} bytes)", offset, length);
  return offset > 0 ? fmt::format(" at offset {}", offset) : "";
}

std::string describe(std::string_view operation, const std::string& path, std::uint64_t offset,
                     std::uint64_t length, int code) {
  return fmt::format("{} of {}{} failed: {} (errno {}){}", operation, path, range_text(offset, length),
                     std::strerror(code), code, meaning_of(code));
}

}  // namespace

IoError::IoError(std::string_view operation, std::string path, std::uint64_t offset, std::uint64_t length,
                 int code)
    : Error(describe(operation, path, offset, length, code)),
      path_(std::move(path)),
      offset_(offset),
      length_(length),
      code_(code) {}

std::string shortened(std::string_view text) {
  constexpr std::size_t longest = 80;
  return std::string(text.substr(0, longest)) + (text.size() > longest ? "..." : "");
}

// Levenshtein distance, one row at a time.
std::uint32_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::uint32_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0u);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::uint32_t diagonal = row[0];
    row[0] = static_cast<std::uint32_t>(i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::uint32_t substituted = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substituted});
    }
  }
  return row.back();
}

namespace detail {

void check_failed(const char* file, int line, const char* condition, const std::string& message) {
  throw std::logic_error(
      fmt::format("internal error at {}:{}: {} ({}). This is a bug of Headrace: please report it.", file,
                  line, message, condition));
}

void throw_errno(const char* file, int line, std::string_view what, int code) {
  const char* name = std::strrchr(file, '/');
  throw Error(fmt::format("cannot {}: {} (errno {}, {}:{})", what, std::strerror(code), code,
                          name == nullptr ? file : name + 1, line));
}

}  // namespace detail
}  // namespace headrace

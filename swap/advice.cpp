#include "swap/advice.h"

#include <fmt/format.h>

#include <cerrno>

#include "headrace/swap_paths.h"
#include "swap/path_group.h"

namespace headrace::swap {
namespace {

std::string restore_or_start_anew(std::optional<std::uint32_t> parity) {
  const bool none = parity && *parity == 0;
  return fmt::format("{}estore the file, or {}.",
                     none ? "This store has no parity, so nothing can be rebuilt: r" : "R",
                     how_to_start_anew);
}

// Empty of a shortage, which is none of the store's.
std::string advice_on(int code, std::optional<std::uint32_t> parity) {
  if (!is_path_failure(code)) return "";
  switch (code) {
    case EACCES:
    case EPERM:
      return "Look at it as the user who runs the job, or have that user allow it (chmod).";
    case ENOENT:
      return restore_or_start_anew(parity);
    case EISDIR:
    case ENOTDIR:
      return "A folder and a file have changed places: remove it, or restore the file of the store.";
    case EIO:
      return fmt::format("The drive cannot give these bytes: see the system log (dmesg). {}",
                         restore_or_start_anew(parity));
    default:
      return "See the system log (dmesg) for what is wrong with the drive or its file system.";
  }
}

std::string with_advice(std::string text, const std::string& advice) {
  if (advice.empty()) return text;
  if (!text.ends_with('.')) text += '.';
  return text + ' ' + advice;
}

}  // namespace

void rethrow_with_advice(const std::exception_ptr& error, std::optional<std::uint32_t> parity) {
  try {
    std::rethrow_exception(error);
  } catch (const IoError& failed) {
    throw PathError(with_advice(failed.what(), advice_on(failed.code(), parity)), failed.path(),
                    failed.code());
  } catch (const CorruptData& damaged) {
    throw CorruptData(with_advice(damaged.what(), restore_or_start_anew(parity)));
  }
}

}  // namespace headrace::swap

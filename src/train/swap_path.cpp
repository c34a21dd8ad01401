#include "src/train/swap_path.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "headrace/errors.h"
#include "headrace/log.h"
#include "src/train/settings.h"

namespace headrace {
namespace {

namespace fs = std::filesystem;

// False too where it cannot be seen: what opens it says why.
bool exists(const std::string& path) {
  std::error_code error;
  return fs::exists(path, error);
}

bool other_rank_exists(const ResolvedOptions& options) {
  for (int rank = 0; rank <= options.launch.size; ++rank)
    if (rank != options.launch.rank && exists(rank_directory(options.swap_path, rank))) return true;
  return false;
}

// Each rank's store is checked as it is made, when those of other ranks may have replaced an earlier run's.
void require_disk(const ResolvedOptions& options, const MemoryPlan& plan) {
  const Bytes needed = plan.nvme.total() * static_cast<Bytes>(options.launch.local_size);
  std::error_code error;
  const fs::space_info space = fs::space(options.swap_path, error);
  if (error) return;
  Bytes available = space.available;
  for (int rank = 0; exists(rank_directory(options.swap_path, rank)); ++rank)
    available += disk_bytes_below(rank_directory(options.swap_path, rank));
  if (needed <= available) return;
  throw DoesNotFit(fmt::format(
      "the swap stores of {} ranks need {} in {}, whose file system has {} for them, an earlier run's stores "
      "included. Free some space, or give --swap-path a folder on a larger disk; --durability none needs "
      "half of it, and cannot be resumed.",
      options.launch.local_size, format_bytes(needed), options.swap_path, format_bytes(available)));
}

}  // namespace

void check_swap_path(const ResolvedOptions& options) {
  const std::string& path = options.swap_path;
  if (path.empty()) return;
  std::error_code error;
  // The folder must exist: a mistyped path would otherwise fill the wrong file system (FIELD-CASES A16).
  const fs::file_status status = fs::status(path, error);
  if (!fs::exists(status))
    throw UsageError(fmt::format(
        "--swap-path {} does not exist{}. Create the folder on the drive that is to hold optimizer states.",
        path, fs::is_symlink(fs::symlink_status(path, error)) ? " (it is a dangling link)" : ""));
  if (!fs::is_directory(status))
    throw UsageError(fmt::format(
        "--swap-path {} is not a folder. Give a folder on the drive that is to hold optimizer states.",
        path));
  refuse_inside_data(options, "--swap-path", path);
  if (::access(path.c_str(), W_OK | X_OK) != 0)
    throw UsageError(fmt::format("--swap-path {} cannot be written: {}.", path, std::strerror(errno)));
  if (options.resume_swap && !exists(options.engine.swap_directories.front()) && other_rank_exists(options))
    throw UsageError(
        fmt::format("--resume swap: {} does not exist, while other ranks' folders do. The run had fewer "
                    "ranks than the {} of this job, or the folder was lost; `headrace inspect {}` says how "
                    "many ranks it had.",
                    options.engine.swap_directories.front(), options.launch.size, path));
  if (options.resume_swap && !exists(options.engine.swap_directories.front()))
    throw UsageError(fmt::format(
        "--resume swap: there is nothing to continue from, {} does not exist. Leave --resume out to start "
        "a new run.",
        options.engine.swap_directories.front()));
}

void claim_swap_path(const ResolvedOptions& options, const MemoryPlan& plan, Communicator& communicator) {
  if (options.swap_path.empty()) return;
  SwapStore::require_free(options.engine.swap_directories);
  SwapStore::require_free(scratch_directories(options.engine.swap_directories));
  if (communicator.size() == 1) return;
  if (!options.resume_swap) require_disk(options, plan);
  communicator.barrier("swap path");
}

void warn_of_replaced_run(const ResolvedOptions& options, IoEngine* io) {
  if (io == nullptr || !exists(options.engine.swap_directories.front() + "/journal.bin")) return;
  try {
    const auto commits = SwapStore::open_read_only(options.engine.swap_directories, *io)->commits();
    if (!commits.empty() && commits.back().step > 0)
      log_warning(
          fmt::format("{} held step {} of an earlier run, which this run replaces; --resume swap would have "
                      "continued it.",
                      options.engine.swap_directories.front(), commits.back().step));
  } catch (const Error&) {  // nothing whole is replaced
  }
}

void remove_stores_of_further_ranks(const ResolvedOptions& options) {
  if (options.swap_path.empty()) return;
  for (int rank = options.launch.size;; ++rank) {
    const std::string folder = rank_directory(options.swap_path, rank),
                      scratch = scratch_directories({folder})[0];
    const bool states = exists(folder + "/store.json"), rest = exists(scratch + "/store.json");
    if (!states && !rest) return;
    if (rest) SwapStore::remove({scratch});
    if (states) SwapStore::remove({folder});
    log_info(fmt::format("removed the swap store {} of the earlier run: this run has {} rank{}", folder,
                         options.launch.size, options.launch.size == 1 ? "" : "s"));
  }
}

Bytes disk_bytes_below(const std::string& path) {
  Bytes bytes = 0;
  std::error_code error;
  for (fs::recursive_directory_iterator entry(path, error), end; !error && entry != end;
       entry.increment(error)) {
    struct stat status {};
    if (::stat(entry->path().c_str(), &status) == 0 && S_ISREG(status.st_mode))
      bytes += static_cast<Bytes>(status.st_blocks) * 512;
  }
  return bytes;
}

void refuse_inside_data(const ResolvedOptions& options, const std::string& what, const std::string& path) {
  if (path.empty()) return;
  std::error_code error;
  const fs::path inner = fs::weakly_canonical(path, error);
  for (const std::string& data : {options.data_path, options.eval_path}) {
    if (data.empty() || error) continue;
    const fs::path outer = fs::weakly_canonical(data, error);
    if (!error && std::mismatch(outer.begin(), outer.end(), inner.begin(), inner.end()).first == outer.end())
      throw UsageError(
          fmt::format("{} {} lies in the data {}, which would then change as the run goes on. Give a "
                      "place outside it.",
                      what, path, data));
  }
}

}  // namespace headrace

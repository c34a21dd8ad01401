#include "src/train/swap_path.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>

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

bool any_exists(const std::vector<std::string>& paths) {
  return std::any_of(paths.begin(), paths.end(), exists);
}

bool other_rank_exists(const ResolvedOptions& options) {
  for (int rank = 0; rank <= options.launch.size; ++rank)
    if (rank != options.launch.rank && any_exists(rank_directories(options.swap_paths, rank))) return true;
  return false;
}

// Bytes on the disk of all ranks' stores in one swap path.
Bytes bytes_of_stores(const std::string& path) {
  Bytes bytes = 0;
  for (int rank = 0; exists(rank_directory(path, rank)); ++rank)
    bytes += disk_bytes_below({rank_directory(path, rank)});
  return bytes;
}

// Each rank's store is checked as it is made, when those of other ranks may have replaced an earlier run's.
// Paths on one file system share its space.
void require_disk(const ResolvedOptions& options, const MemoryPlan& plan) {
  struct Disk {
    std::vector<std::string> paths;
    Bytes needed = 0, available = 0;
  };
  std::map<dev_t, Disk> disks;
  for (std::size_t p = 0; p < options.swap_paths.size(); ++p) {
    const std::string& path = options.swap_paths[p];
    struct stat status {};
    std::error_code error;
    const fs::space_info space = fs::space(path, error);
    if (error || ::stat(path.c_str(), &status) != 0) continue;
    Disk& disk = disks[status.st_dev];
    if (disk.paths.empty()) disk.available = space.available;
    disk.paths.push_back(path);
    disk.available += bytes_of_stores(path);
    disk.needed += plan.nvme_path_bytes.at(p) * static_cast<Bytes>(options.launch.local_size);
  }
  for (const auto& [device, disk] : disks)
    if (disk.needed > disk.available)
      throw DoesNotFit(fmt::format(
          "the swap stores of {} ranks need {} in {}, whose file system has {} for them, an earlier run's "
          "stores included. Free some space, or give --swap-path a folder on a larger disk; --durability "
          "none "
          "needs half of it, and cannot be resumed.",
          options.launch.local_size, format_bytes(disk.needed), path_list(disk.paths),
          format_bytes(disk.available)));
}

// Why the path cannot be used; empty when it can (FIELD-CASES A16).
std::string problem_of(const std::string& path) {
  std::error_code error;
  // The folder must exist: a mistyped path would otherwise fill the wrong file system.
  const fs::file_status status = fs::status(path, error);
  if (!fs::exists(status))
    return fmt::format(
        "--swap-path {} does not exist{}. Create the folder on the drive that is to hold optimizer states.",
        path, fs::is_symlink(fs::symlink_status(path, error)) ? " (it is a dangling link)" : "");
  if (!fs::is_directory(status))
    return fmt::format(
        "--swap-path {} is not a folder. Give a folder on the drive that is to hold optimizer states.", path);
  if (::access(path.c_str(), W_OK | X_OK) != 0)
    return fmt::format("--swap-path {} cannot be written: {}.", path, std::strerror(errno));
  return "";
}

void refuse_same_folder(const std::vector<std::string>& paths) {
  for (std::size_t second = 1; second < paths.size(); ++second)
    for (std::size_t first = 0; first < second; ++first) {
      std::error_code error;
      if (fs::equivalent(paths[first], paths[second], error) && !error)
        throw UsageError(fmt::format("--swap-path {} and {} are the same folder. Give each once.",
                                     paths[first], paths[second]));
    }
}

void check_resumable(const ResolvedOptions& options) {
  const std::vector<std::string>& directories = options.engine.swap_directories;
  const auto missing = static_cast<std::size_t>(
      std::count_if(directories.begin(), directories.end(),
                    [](const std::string& directory) { return !exists(directory); }));
  if (missing <= options.engine.swap_parity) return;
  if (missing < directories.size()) return;  // opening the store says which ones, and what to do
  if (other_rank_exists(options))
    throw UsageError(
        fmt::format("--resume swap: {} does not exist, while other ranks' folders do. The run had fewer "
                    "ranks than the {} of this job, or the folder was lost; `headrace inspect {}` says how "
                    "many ranks it had.",
                    path_list(directories), options.launch.size, fmt::join(options.swap_paths, " ")));
  throw UsageError(fmt::format(
      "--resume swap: there is nothing to continue from, {} does not exist. Leave --resume out to start "
      "a new run.",
      path_list(directories)));
}

}  // namespace

void check_swap_path(const ResolvedOptions& options) {
  if (options.swap_paths.empty()) return;
  std::uint32_t unusable = 0;
  for (const std::string& path : options.swap_paths) {
    const std::string problem = problem_of(path);
    if (problem.empty()) {
      refuse_inside_data(options, "--swap-path", path);
      continue;
    }
    if (!options.resume_swap || ++unusable > options.engine.swap_parity) throw UsageError(problem);
  }
  refuse_same_folder(options.swap_paths);
  if (options.resume_swap) check_resumable(options);
}

void place_by_measured_rates(const ResolvedOptions& options, RunPlan& plan, IoEngine* io) {
  const bool shares_load = options.swap_paths.size() > 1 && options.engine.swap_parity == 0;
  if (io == nullptr || !shares_load || options.resume_swap || !options.engine.swap_path_rates.empty()) return;
  const std::vector<double> rates = measure_path_rates(options.swap_paths, *io);
  if (std::any_of(rates.begin(), rates.end(), [](double rate) { return !(rate > 0); })) {
    log_info("the swap paths cannot all be measured by direct I/O: each gets an equal share of the blocks");
    return;
  }
  std::string text;
  for (std::size_t p = 0; p < rates.size(); ++p)
    text += fmt::format("{}{} {:.2f} GB/s", p == 0 ? "" : ", ", options.swap_paths[p], rates[p] / 1e9);
  log_info(fmt::format("swap paths measured: {}; blocks are placed in proportion", text));
  plan.request.engine.swap_path_rates = rates;
  plan.memory.nvme_path_bytes = plan_memory(plan.request).nvme_path_bytes;
}

void claim_swap_path(const ResolvedOptions& options, const MemoryPlan& plan, Communicator& communicator) {
  if (options.swap_paths.empty()) return;
  SwapStore::require_free(options.engine.swap_directories);
  SwapStore::require_free(scratch_directories(options.engine.swap_directories));
  if (communicator.size() == 1) return;
  if (!options.resume_swap) require_disk(options, plan);
  communicator.barrier("swap path");
}

// A store of more or fewer paths than this run has: what is replaced on some is lost on all.
void warn_of_separated_run(const std::vector<std::string>& directories, IoEngine& io) {
  for (const std::string& directory : directories) {
    try {
      std::vector<std::string> all = SwapStore::directories_of(directory);
      const auto commits = SwapStore::open_read_only(all, io)->commits();
      if (commits.empty() || commits.back().step == 0) continue;
      std::erase_if(all, [&](const std::string& other) {
        return std::any_of(directories.begin(), directories.end(), [&](const std::string& mine) {
          std::error_code error;
          return fs::equivalent(mine, other, error);
        });
      });
      log_warning(fmt::format(
          "{} held step {} of an earlier run of other swap paths, which this run replaces{}.", directory,
          commits.back().step,
          all.empty() ? "" : fmt::format("; {} is left behind and may be deleted", path_list(all))));
      return;
    } catch (const Error&) {  // nothing whole is replaced here
    }
  }
}

void warn_of_replaced_run(const ResolvedOptions& options, IoEngine* io) {
  std::vector<std::string> journals;
  for (const std::string& directory : options.engine.swap_directories)
    journals.push_back(directory + "/journal.bin");
  const bool replaces = options.engine.optimizer_tier == Tier::nvme;
  if (io == nullptr || !replaces || !any_exists(journals)) return;
  try {
    const auto commits = SwapStore::open_read_only(options.engine.swap_directories, *io)->commits();
    if (!commits.empty() && commits.back().step > 0)
      log_warning(
          fmt::format("{} held step {} of an earlier run, which this run replaces; --resume swap would have "
                      "continued it.",
                      path_list(options.engine.swap_directories), commits.back().step));
  } catch (const Error&) {  // of another number of paths, or nothing whole is replaced
    warn_of_separated_run(options.engine.swap_directories, *io);
  }
}

namespace {

std::vector<std::string> stores_in(std::vector<std::string> directories) {
  std::erase_if(directories, [](const std::string& directory) { return !exists(directory + "/store.json"); });
  return directories;
}

}  // namespace

void remove_stores_of_further_ranks(const ResolvedOptions& options) {
  if (options.swap_paths.empty()) return;
  for (int rank = options.launch.size;; ++rank) {
    const std::vector<std::string> folders = rank_directories(options.swap_paths, rank);
    // States of an earlier run that this one does not replace stay.
    const bool replaces = options.engine.optimizer_tier == Tier::nvme;
    const std::vector<std::string> scratch = stores_in(scratch_directories(folders)),
                                   stores = replaces ? stores_in(folders) : std::vector<std::string>{};
    if (stores.empty() && scratch.empty()) return;
    if (!scratch.empty()) SwapStore::remove(scratch);
    if (!stores.empty()) SwapStore::remove(stores);
    log_info(fmt::format("removed the swap store {} of the earlier run: this run has {} rank{}",
                         path_list(stores.empty() ? scratch : stores), options.launch.size,
                         options.launch.size == 1 ? "" : "s"));
  }
}

std::string path_list(const std::vector<std::string>& paths) {
  return fmt::format("{}", fmt::join(paths, ", "));
}

Bytes disk_bytes_below(const std::vector<std::string>& paths) {
  Bytes bytes = 0;
  for (const std::string& path : paths) {
    std::error_code error;
    for (fs::recursive_directory_iterator entry(path, error), end; !error && entry != end;
         entry.increment(error)) {
      struct stat status {};
      if (::stat(entry->path().c_str(), &status) == 0 && S_ISREG(status.st_mode))
        bytes += static_cast<Bytes>(status.st_blocks) * 512;
    }
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

#include "src/train/swap_path.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/statfs.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <map>

#include "headrace/errors.h"
#include "headrace/folders.h"
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

// Paths on one file system share its space.
struct Disk {
  std::vector<std::string> paths;
  Bytes needed = 0, needed_without_durability = 0, available = 0;
};

// Bytes of each path with --durability none; empty where that is no choice.
std::vector<Bytes> bytes_without_durability(const RunPlan& plan) {
  PlanRequest request = plan.request;
  if (request.engine.optimizer_tier != Tier::nvme || request.engine.durability == Durability::none) return {};
  request.engine.durability = Durability::none;
  return plan_memory(request).nvme_path_bytes;
}

std::vector<Disk> disks_of(const ResolvedOptions& options, const RunPlan& plan,
                           std::vector<std::string>& unknown) {
  std::map<dev_t, Disk> disks;
  const auto ranks = static_cast<Bytes>(options.launch.local_size);
  const std::vector<Bytes> otherwise = bytes_without_durability(plan);
  for (std::size_t p = 0; p < options.swap_paths.size(); ++p) {
    const std::string& path = options.swap_paths[p];
    struct stat status {};
    std::error_code error;
    const fs::space_info space = fs::space(path, error);
    if (error || ::stat(path.c_str(), &status) != 0) {
      unknown.push_back(path);
      continue;
    }
    Disk& disk = disks[status.st_dev];
    if (disk.paths.empty()) disk.available = space.available;
    disk.paths.push_back(path);
    disk.available += bytes_of_stores(path);
    const Bytes needed = plan.memory.nvme_path_bytes.at(p);
    disk.needed += needed * ranks;
    disk.needed_without_durability += (otherwise.empty() ? needed : otherwise.at(p)) * ranks;
  }
  std::vector<Disk> result;
  for (auto& [device, disk] : disks) result.push_back(std::move(disk));
  return result;
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
  // The folder must exist: a mistyped path would otherwise fill the wrong file system (FIELD-CASES A16).
  constexpr std::string_view purpose = "on the drive that is to hold optimizer states";
  std::uint32_t unusable = 0;
  for (const std::string& path : options.swap_paths) {
    const std::string problem = folder_problem(options.swap_path_name, path, purpose);
    if (problem.empty()) {
      refuse_inside_data(options, options.swap_path_name, path);
      continue;
    }
    if (!options.resume_swap || ++unusable > options.engine.swap_parity) throw UsageError(problem);
  }
  require_different_folders(options.swap_path_name, options.swap_paths);
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

SwapSpace swap_space(const ResolvedOptions& options, const RunPlan& plan) {
  SwapSpace result;
  const std::vector<Disk> disks = disks_of(options, plan, result.unknown);
  const auto fits = [](const Disk& disk) { return disk.needed <= disk.available; };
  const auto full = std::find_if_not(disks.begin(), disks.end(), fits);
  if (full == disks.end()) return result;
  const bool would_fit = std::all_of(disks.begin(), disks.end(), [](const Disk& disk) {
    return disk.needed_without_durability <= disk.available;
  });
  result.shortage = fmt::format(
      "the swap store{} in {}, whose file system has {} for {}, an earlier run's stores included. Free some "
      "space, or give a swap path on a larger disk{}.",
      options.launch.local_size == 1
          ? fmt::format(" needs {}", format_bytes(full->needed))
          : fmt::format("s of {} ranks need {}", options.launch.local_size, format_bytes(full->needed)),
      path_list(full->paths), format_bytes(full->available), options.launch.local_size == 1 ? "it" : "them",
      would_fit ? fmt::format("; --durability none needs {}, and cannot be resumed",
                              format_bytes(full->needed_without_durability))
                : "");
  return result;
}

void claim_swap_path(const ResolvedOptions& options, const RunPlan& plan, Communicator& communicator) {
  if (options.swap_paths.empty()) return;
  SwapStore::require_free(options.engine.swap_directories);
  SwapStore::require_free(scratch_directories(options.engine.swap_directories));
  if (!options.resume_swap)
    if (const SwapSpace space = swap_space(options, plan); !space.shortage.empty())
      throw DoesNotFit(space.shortage);
  if (communicator.size() > 1) communicator.barrier("swap path");
}

void warn_of_poor_paths(const ResolvedOptions& options) {
  std::map<dev_t, std::vector<std::string>> drives;
  for (const std::string& path : options.swap_paths) {
    struct statfs system {};
    struct stat status {};
    if (::statfs(path.c_str(), &system) != 0 || ::stat(path.c_str(), &status) != 0) continue;
    drives[status.st_dev].push_back(path);
    if (system.f_type == TMPFS_MAGIC || system.f_type == RAMFS_MAGIC)
      log_warning(
          fmt::format("{} {} is on a file system in memory: what is kept there takes host memory, which "
                      "--host-memory does not bound. Give a folder on an NVMe drive.",
                      options.swap_path_name, path));
  }
  const std::uint32_t parity = options.engine.swap_parity;
  for (const auto& [device, paths] : drives)
    if (parity > 0 && paths.size() > parity)
      log_warning(
          fmt::format("--swap-parity {} does not protect against the loss of a drive: {} are on one file "
                      "system, and are lost together. Give folders on different drives.",
                      parity, path_list(paths)));
}

namespace {

// The folders of the store in `directories` that are not among them; empty where they are not known.
std::vector<std::string> other_directories(const std::vector<std::string>& directories) {
  std::vector<std::string> others;
  for (const std::string& directory : directories) {
    try {
      for (const std::string& other : SwapStore::directories_of(directory)) {
        const auto same = [&](const std::string& known) {
          std::error_code error;
          return fs::weakly_canonical(known, error) == fs::weakly_canonical(other, error);
        };
        if (std::none_of(directories.begin(), directories.end(), same) &&
            std::none_of(others.begin(), others.end(), same))
          others.push_back(other);
      }
    } catch (const Error&) {  // its description is damaged
    }
  }
  return others;
}

constexpr std::string_view how_to_keep =
    "To keep that run, add --resume swap, which continues it, or give another --swap-path.";

// A store of more or fewer paths than this run has: what is replaced on some is lost on all. False where
// there is none that can be read.
bool warn_of_separated_run(const std::vector<std::string>& directories, IoEngine& io) {
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
          "{} held step {} of an earlier run of other swap paths, which this run replaces{}. To keep that "
          "run, "
          "give all its swap paths{} with --resume swap, or this run another --swap-path.",
          directory, commits.back().step,
          all.empty() ? "" : fmt::format("; {} is left behind and may be deleted", path_list(all)),
          all.empty() ? "" : fmt::format(", {} too,", path_list(all))));
      return true;
    } catch (const Error&) {  // nothing whole is replaced here
    }
  }
  return false;
}

void warn_of_unreadable_store(const std::vector<std::string>& directories, std::string why) {
  if (!why.ends_with('.')) why += '.';
  const std::vector<std::string> others = other_directories(directories);
  log_warning(fmt::format(
      "{} {} a swap store of an earlier run that could not be read, and this run replaces it: {} {}{}",
      path_list(directories), directories.size() == 1 ? "holds" : "hold", why, how_to_keep,
      others.empty() ? "" : fmt::format(" It also lies in {}, to be given too.", path_list(others))));
}

}  // namespace

void warn_of_replaced_run(const ResolvedOptions& options, IoEngine* io) {
  std::vector<std::string> journals;  // none: nothing is kept there across runs
  for (const std::string& directory : options.engine.swap_directories)
    journals.push_back(directory + "/journal.bin");
  const bool replaces = options.engine.optimizer_tier == Tier::nvme;
  if (io == nullptr || !replaces || !any_exists(journals)) return;
  try {
    const auto commits = SwapStore::open_read_only(options.engine.swap_directories, *io)->commits();
    if (!commits.empty() && commits.back().step > 0)
      log_warning(fmt::format("{} {} step {} of an earlier run, which this run replaces. {}",
                              path_list(options.engine.swap_directories),
                              options.engine.swap_directories.size() == 1 ? "holds" : "hold",
                              commits.back().step, how_to_keep));
  } catch (const Error& error) {
    if (!warn_of_separated_run(options.engine.swap_directories, *io))
      warn_of_unreadable_store(options.engine.swap_directories, error.what());
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

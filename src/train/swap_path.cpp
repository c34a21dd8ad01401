#include "src/train/swap_path.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>

#include "headrace/errors.h"
#include "headrace/folders.h"
#include "headrace/log.h"
#include "headrace/pinned_checkpoints.h"
#include "headrace/shell_words.h"
#include "src/train/replaced_run.h"
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

bool has_stores(const std::vector<std::string>& paths) {
  return std::ranges::any_of(paths, [](const std::string& path) { return bytes_of_stores(path) > 0; });
}

// Bytes of each path with --durability none; empty where that is no choice.
std::vector<Bytes> bytes_without_durability(const RunPlan& plan) {
  PlanRequest request = plan.request;
  if (request.engine.optimizer_tier != Tier::nvme || request.engine.durability == Durability::none ||
      request.engine.swap_pins > 0)
    return {};
  request.engine.durability = Durability::none;
  return plan_memory(request).nvme_path_bytes;
}

// What the stores of all ranks of this host need, in bytes of each path for one rank.
std::vector<PathSpace> spaces_of(const ResolvedOptions& options, const std::vector<Bytes>& needed) {
  std::vector<PathSpace> paths;
  for (std::size_t p = 0; p < options.swap_paths.size(); ++p)
    paths.push_back({options.swap_paths[p], needed.at(p) * static_cast<Bytes>(options.launch.local_size),
                     bytes_of_stores(options.swap_paths[p])});
  return paths;
}

// What the full disk would have to hold if the paths needed so much; none where that would not fit either.
std::optional<Bytes> fitting(const ResolvedOptions& options, const std::vector<Bytes>& needed,
                             const DiskSpace& full) {
  std::vector<std::string> unknown;
  const auto disks = space_by_disk(spaces_of(options, needed), &unknown);
  const auto same = std::ranges::find(disks, full.paths, &DiskSpace::paths);
  if (same == disks.end() || !std::ranges::all_of(disks, &DiskSpace::is_enough)) return std::nullopt;
  return same->needed;
}

// Empty where it would not fit either, or is no choice.
std::string advice_of_durability(const ResolvedOptions& options, const RunPlan& plan, const DiskSpace& full) {
  const std::vector<Bytes> needed = bytes_without_durability(plan);
  const std::optional<Bytes> fits = needed.empty() ? std::nullopt : fitting(options, needed, full);
  return fits ? fmt::format("; --durability none needs {}, and cannot be resumed", format_bytes(*fits)) : "";
}

// As many pinned checkpoints as fit.
std::string advice_of_pins(const ResolvedOptions& options, const RunPlan& plan, const DiskSpace& full) {
  PlanRequest request = plan.request;
  const std::string_view reserved = "; --checkpoint-mode pin reserves room for each";
  while (--request.engine.swap_pins > 1)
    if (const auto fits = fitting(options, plan_memory(request).nvme_path_bytes, full))
      return fmt::format("{}: --keep-last {} needs {}", reserved, request.engine.swap_pins - 1,
                         format_bytes(*fits));
  request.engine.swap_pins = 0;
  const auto fits = fitting(options, plan_memory(request).nvme_path_bytes, full);
  return fits ? fmt::format(
                    "{}: with --checkpoint-mode copy the store needs {}, and the checkpoints are files",
                    reserved, format_bytes(*fits))
              : "";
}

std::string plural_are(const std::vector<std::string>& paths) {
  return fmt::format("{} {}", path_list(paths), paths.size() == 1 ? "is" : "are");
}

// Opening the store would say so too, of this rank's folders; here it is the flags.
void refuse_other_number_of_paths(const ResolvedOptions& options) {
  const StorePaths store = store_paths(options.engine.swap_directories);
  if (store.all.empty() || store.all.size() == options.swap_paths.size()) return;
  std::string flags;
  for (const std::string& path : store.all) flags += fmt::format("--swap-path {} ", shell_word(path));
  throw UsageError(fmt::format(
      "--resume swap: the run has {} swap path{}, and {} given{}{}. Continue it with {}--resume swap",
      store.all.size(), store.all.size() == 1 ? "" : "s",
      options.swap_paths.size() == 1 ? "1 is" : fmt::format("{} are", options.swap_paths.size()),
      store.missing.empty() ? "" : fmt::format("; {} missing", plural_are(store.missing)),
      store.others.empty() ? "" : fmt::format("; {} not of that run", plural_are(store.others)), flags));
}

void check_resumable(const ResolvedOptions& options) {
  refuse_other_number_of_paths(options);
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
                    path_list(directories), options.launch.size, shell_words(options.swap_paths)));
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
  const auto disks = space_by_disk(spaces_of(options, plan.memory.nvme_path_bytes), &result.unknown);
  const auto full = std::ranges::find_if_not(disks, &DiskSpace::is_enough);
  if (full == disks.end()) return result;
  result.shortage = fmt::format(
      "the swap store{} in {}, whose file system has {} for {}{}. Free some space, or give a swap path on a "
      "larger disk{}.",
      options.launch.local_size == 1
          ? fmt::format(" needs {}", format_bytes(full->needed))
          : fmt::format("s of {} ranks need {}", options.launch.local_size, format_bytes(full->needed)),
      path_list(full->paths), format_bytes(full->available), options.launch.local_size == 1 ? "it" : "them",
      has_stores(full->paths) ? ", an earlier run's stores included" : "",
      options.engine.swap_pins > 0 ? advice_of_pins(options, plan, *full)
                                   : advice_of_durability(options, plan, *full));
  return result;
}

std::vector<PathSpace> swap_path_spaces(const ResolvedOptions& options, const RunPlan& plan) {
  return spaces_of(options, plan.memory.nvme_path_bytes);
}

void claim_swap_path(const ResolvedOptions& options, const RunPlan& plan, const std::string& checkpoint,
                     Communicator& communicator) {
  if (options.swap_paths.empty()) return;
  SwapStore::require_free(options.engine.swap_directories);
  SwapStore::require_free(scratch_directories(options.engine.swap_directories));
  if (options.resume_swap && !options.checkpoint.directory.empty())
    require_folder_of_pins(options.engine.swap_directories, options.checkpoint.directory);
  if (options.resume_swap && options.checkpoint.pin)
    require_room_for_pins(options.engine.swap_directories, options.checkpoint.directory,
                          options.checkpoint.keep_last);
  if (!options.resume_swap) refuse_to_replace(options, checkpoint);
  if (!options.resume_swap)
    if (const SwapSpace space = swap_space(options, plan); !space.shortage.empty())
      throw DoesNotFit(space.shortage);
  if (communicator.size() > 1) communicator.barrier("swap path");
}

void warn_of_poor_paths(const ResolvedOptions& options) {
  std::map<dev_t, std::vector<std::string>> drives;
  for (const std::string& path : options.swap_paths) {
    struct stat status {};
    if (::stat(path.c_str(), &status) != 0) continue;
    drives[status.st_dev].push_back(path);
    if (lies_in_memory(path))
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

Bytes disk_bytes_of_run(const ResolvedOptions& options) {
  Bytes bytes = 0;
  for (int rank = 0; rank < options.launch.size; ++rank)
    bytes += disk_bytes_below(rank_directories(options.swap_paths, rank));
  return bytes;
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
      if (entry->path().filename() != "lock" && ::stat(entry->path().c_str(), &status) == 0 &&
          S_ISREG(status.st_mode))
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

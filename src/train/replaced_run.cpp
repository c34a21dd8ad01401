#include "src/train/replaced_run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <optional>

#include "headrace/errors.h"
#include "headrace/log.h"
#include "headrace/shell_words.h"
#include "headrace/swap_store.h"
#include "src/train/settings.h"
#include "src/train/swap_path.h"

namespace headrace {
namespace {

namespace fs = std::filesystem;
using Paths = std::vector<std::string>;

bool is_same(const std::string& one, const std::string& other) {
  std::error_code error;
  return fs::weakly_canonical(one, error) == fs::weakly_canonical(other, error);
}

const std::string* find_same(const Paths& paths, const std::string& path) {
  const auto found =
      std::find_if(paths.begin(), paths.end(), [&](const std::string& each) { return is_same(each, path); });
  return found == paths.end() ? nullptr : &*found;
}

std::string path_above(const std::string& rank_folder) {
  const fs::path above = fs::path(rank_folder).parent_path();
  return above.empty() ? "." : above.string();
}

// A store of a run that was ended while it made it has no store.json yet; one without a journal keeps
// nothing.
bool keeps_states(const Paths& rank_folders) {
  return std::any_of(rank_folders.begin(), rank_folders.end(), [](const std::string& folder) {
    std::error_code error;
    return fs::exists(fs::symlink_status(folder + "/store.json", error)) &&
           fs::exists(fs::symlink_status(folder + "/journal.bin", error));
  });
}

std::string age_of(const Paths& rank_folders) {
  std::optional<fs::file_time_type> newest;
  for (const std::string& folder : rank_folders) {
    std::error_code error;
    const fs::file_time_type time = fs::last_write_time(folder + "/journal.bin", error);
    if (!error && (!newest || time > *newest)) newest = time;
  }
  if (!newest) return "at an unknown time";
  const auto seconds =
      std::chrono::duration_cast<std::chrono::seconds>(fs::file_time_type::clock::now() - *newest).count();
  constexpr long minute = 60, hour = 60 * minute, day = 24 * hour;
  if (seconds >= 2 * day) return fmt::format("{} days ago", seconds / day);
  if (seconds >= 2 * hour) return fmt::format("{} hours ago", seconds / hour);
  if (seconds >= 2 * minute) return fmt::format("{} minutes ago", seconds / minute);
  return fmt::format("{} seconds ago", std::max<long>(seconds, 0));
}

struct ReplacedRun {
  std::string text;          // what is there; empty: nothing that would be missed
  Paths further_swap_paths;  // of that run, which are not given
};

// "DIR holds step 3 of an earlier run, written 5 hours ago, 1.2 GiB on the disk".
std::string describe(const Paths& folders, const std::string& what) {
  return fmt::format("{} {} {}, written {}, {} on the disk", path_list(folders),
                     folders.size() == 1 ? "holds" : "hold", what, age_of(folders),
                     format_bytes(disk_bytes_below(folders)));
}

ReplacedRun replaced_run(const Paths& rank_folders) {
  ReplacedRun run;
  if (!keeps_states(rank_folders)) return run;
  const StorePaths store = store_paths(rank_folders);
  Paths folders = rank_folders;
  if (!store.all.empty() && store.all.size() != rank_folders.size()) {
    // What is deleted on some paths is lost on all.
    const std::string name = fs::path(rank_folders.front()).filename().string();
    std::erase_if(folders, [&](const std::string& folder) {
      return find_same(store.all, path_above(folder)) == nullptr;
    });
    for (const std::string& path : store.missing) folders.push_back((fs::path(path) / name).string());
    run.further_swap_paths = store.missing;
  }
  try {
    const std::vector<SwapCommit> commits = SwapStore::describe(folders).commits;
    if (commits.empty() || commits.back().step == 0) return {};
    run.text = describe(folders, fmt::format("step {} of an earlier run", commits.back().step));
  } catch (const Error& error) {
    std::string why = error.what();
    while (why.ends_with('.')) why.pop_back();
    run.text = describe(rank_folders, fmt::format("a swap store that cannot be read ({})", why));
  }
  return run;
}

void refuse_to_replace(const ResolvedOptions& options, const Paths& rank_folders) {
  const ReplacedRun run = replaced_run(rank_folders);
  if (run.text.empty()) return;
  std::string further;
  for (const std::string& path : run.further_swap_paths) further += " --swap-path " + shell_word(path);
  if (!options.overwrite_swap)
    throw UsageError(
        fmt::format("{}. Starting a new run here would delete it: give --resume swap{} to continue it, "
                    "another --swap-path "
                    "to keep it, or --overwrite-swap to delete it.",
                    run.text, further));
  log_info(fmt::format("{}: this run replaces it{}", run.text,
                       further.empty()
                           ? ""
                           : fmt::format(", and leaves what is in {} behind, which may be deleted",
                                         path_list(run.further_swap_paths))));
}

}  // namespace

StorePaths store_paths(const Paths& rank_folders) {
  StorePaths result;
  Paths all;
  for (const std::string& folder : rank_folders) {
    try {
      all = SwapStore::directories_of(folder);
      break;
    } catch (const Error&) {  // no store, or a damaged description
    }
  }
  if (all.empty()) return result;
  for (const std::string& folder : all) {
    const std::string* given = find_same(rank_folders, folder);
    result.all.push_back(path_above(given != nullptr ? *given : folder));
    if (given == nullptr) result.missing.push_back(result.all.back());
  }
  for (const std::string& folder : rank_folders)
    if (find_same(all, folder) == nullptr) result.others.push_back(path_above(folder));
  return result;
}

void refuse_to_replace(const ResolvedOptions& options) {
  if (options.engine.optimizer_tier != Tier::nvme) return;  // states of an earlier run stay
  refuse_to_replace(options, options.engine.swap_directories);
  if (options.launch.rank != 0) return;
  for (int rank = options.launch.size;; ++rank) {  // those of an earlier run of more ranks
    const Paths folders = rank_directories(options.swap_paths, rank);
    if (!keeps_states(folders)) return;
    refuse_to_replace(options, folders);
  }
}

}  // namespace headrace

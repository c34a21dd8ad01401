#include "src/train/replaced_run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <optional>

#include "headrace/checkpoint.h"
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
  std::error_code error, other_error;
  const fs::path canonical = fs::weakly_canonical(one, error);
  const fs::path other_canonical = fs::weakly_canonical(other, other_error);
  return error || other_error ? one == other : canonical == other_canonical;
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
  return seconds == 1 ? "1 second ago" : fmt::format("{} seconds ago", std::max<long>(seconds, 0));
}

// Folders that were given and belong to one store; without an id, one whose description cannot be read.
struct GivenStore {
  std::optional<std::uint64_t> id;
  Paths folders;
};

std::optional<std::uint64_t> id_of(const std::string& folder) {
  try {
    return SwapStore::id_of(folder);
  } catch (const Error&) {  // no store, or a damaged description
    return std::nullopt;
  }
}

std::vector<GivenStore> stores_among(const Paths& rank_folders) {
  std::vector<GivenStore> stores;
  for (const std::string& folder : rank_folders) {
    const auto id = id_of(folder);
    const auto same = std::find_if(stores.begin(), stores.end(),
                                   [&](const GivenStore& store) { return id && store.id == id; });
    if (same != stores.end())
      same->folders.push_back(folder);
    else
      stores.push_back({id, {folder}});
  }
  return stores;
}

// The run that goes on from a checkpoint, and the step of that.
struct Continued {
  std::uint64_t id = 0, step = 0;
};

std::optional<Continued> continued_run(const ResolvedOptions& options, const std::string& checkpoint) {
  if (checkpoint.empty() || !options.checkpoint.weights.empty()) return std::nullopt;
  const CheckpointFacts facts = read_checkpoint_facts(checkpoint);
  if (facts.state.run_id == 0) return std::nullopt;
  return Continued{facts.state.run_id, facts.step};
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

// All paths of the store: what is deleted on some is lost on all. Where one of them lay something else may
// lie by now.
Paths with_further_paths(const GivenStore& store, Paths& further_swap_paths) {
  Paths folders = store.folders;
  if (!store.id) return folders;
  const Paths all = SwapStore::directories_of(folders.front());
  for (const std::string& folder : all) {
    if (folders.size() == all.size()) break;
    if (find_same(store.folders, folder) != nullptr) continue;
    folders.push_back(folder);
    if (id_of(folder) == store.id) further_swap_paths.push_back(path_above(folder));
  }
  return folders;
}

bool is_of(const Continued& continued, const SwapCommit& commit) {
  std::uint64_t steps_applied = 0;
  return decode_training_state(commit.metadata, steps_applied).run_id == continued.id;
}

std::string pins_text(const std::vector<SwapPin>& pins) {
  if (pins.empty()) return "";
  std::vector<std::uint64_t> steps;
  for (const SwapPin& pin : pins) steps.push_back(pin.commit.step);
  return fmt::format(" and {} pinned checkpoint{} (of step {})", pins.size(), pins.size() == 1 ? "" : "s",
                     fmt::join(steps, ", "));
}

ReplacedRun replaced_run(const GivenStore& store, const std::optional<Continued>& continued) {
  ReplacedRun run;
  if (!keeps_states(store.folders)) return run;
  try {
    const Paths folders = with_further_paths(store, run.further_swap_paths);
    const SwapDescription found = SwapStore::describe(folders);
    const std::vector<SwapCommit>& commits = found.commits;
    if (commits.empty() || (commits.back().step == 0 && found.pins.empty())) return {};
    const std::uint64_t step = commits.back().step;
    const bool same_run = continued && is_of(*continued, commits.back());
    const bool is_later = !same_run || step > continued->step;
    if (!is_later && found.pins.empty()) return {};
    run.text = describe(
        folders,
        (same_run ? fmt::format("step {} of this very run", step)
                  : fmt::format("step {} of an earlier run", step)) +
            (same_run && is_later ? fmt::format(", later than the checkpoint's {}", continued->step) : "") +
            pins_text(found.pins));
  } catch (const Error& error) {
    std::string why = error.what();
    while (why.ends_with('.')) why.pop_back();
    run.text = describe(store.folders, fmt::format("a swap store that cannot be read ({})", why));
  }
  return run;
}

[[noreturn]] void refuse(const std::vector<ReplacedRun>& runs, const std::string& what,
                         bool from_checkpoint) {
  if (runs.size() > 1)
    throw UsageError(
        fmt::format("{}. Starting a new run here would delete all of them: give another --swap-path to keep "
                    "them, or --overwrite-swap to delete them.",
                    what));
  std::string further;
  for (const std::string& path : runs.front().further_swap_paths)
    further += " --swap-path " + shell_word(path);
  throw UsageError(fmt::format(
      "{}. {} would delete it: give --resume swap{} to continue it, another "
      "--swap-path to keep it, or --overwrite-swap to delete it.",
      what, from_checkpoint ? "Going on from the checkpoint" : "Starting a new run here", further));
}

void refuse_to_replace(const ResolvedOptions& options, const std::optional<Continued>& continued,
                       const Paths& rank_folders) {
  std::vector<ReplacedRun> runs;
  Paths texts, further;
  for (const GivenStore& store : stores_among(rank_folders)) {
    ReplacedRun run = replaced_run(store, continued);
    if (run.text.empty()) continue;
    texts.push_back(run.text);
    further.insert(further.end(), run.further_swap_paths.begin(), run.further_swap_paths.end());
    runs.push_back(std::move(run));
  }
  if (runs.empty()) return;
  const std::string what = fmt::format("{}", fmt::join(texts, "; "));
  if (!options.overwrite_swap) refuse(runs, what, continued.has_value());
  log_info(fmt::format(
      "{}: this run replaces {}{}", what, runs.size() == 1 ? "it" : "them",
      further.empty()
          ? ""
          : fmt::format(", and leaves what is in {} behind, which may be deleted", path_list(further))));
}

}  // namespace

StorePaths store_paths(const Paths& rank_folders) {
  StorePaths result;
  Paths all;
  try {
    all = SwapStore::directories_of(rank_folders);
  } catch (const Error&) {  // no store, or damaged descriptions
    return result;
  }
  for (const std::string& folder : all) {
    const std::string* given = find_same(rank_folders, folder);
    result.all.push_back(path_above(given != nullptr ? *given : folder));
    if (given == nullptr) result.missing.push_back(result.all.back());
  }
  for (const std::string& folder : rank_folders)
    if (find_same(all, folder) == nullptr) result.others.push_back(path_above(folder));
  return result;
}

void refuse_to_replace(const ResolvedOptions& options, const std::string& checkpoint) {
  if (options.engine.optimizer_tier != Tier::nvme) return;  // states of an earlier run stay
  const std::optional<Continued> continued = continued_run(options, checkpoint);
  refuse_to_replace(options, continued, options.engine.swap_directories);
  if (options.launch.rank != 0) return;
  for (int rank = options.launch.size;; ++rank) {  // those of an earlier run of more ranks
    const Paths folders = rank_directories(options.swap_paths, rank);
    if (!keeps_states(folders)) return;
    refuse_to_replace(options, continued, folders);
  }
}

}  // namespace headrace

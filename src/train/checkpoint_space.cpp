#include "src/train/checkpoint_space.h"

#include <algorithm>
#include <numeric>

#include "headrace/checkpoint.h"
#include "headrace/checkpoint_space.h"
#include "headrace/errors.h"
#include "headrace/files.h"
#include "headrace/kept_format.h"
#include "headrace/log.h"
#include "src/train/swap_path.h"

namespace headrace {
namespace {

// The step from which the run goes on, as far as it can be told without its swap store's lock.
std::uint64_t first_step(const ResolvedOptions& options) {
  try {
    if (!options.checkpoint.go_back_to.empty())
      return read_checkpoint_facts(options.checkpoint.go_back_to).step;
    if (options.resume_swap) {
      const std::vector<SwapCommit> commits = SwapStore::describe(options.engine.swap_directories).commits;
      return commits.empty() ? 0 : commits.back().step;
    }
    if (!options.checkpoint.resume.empty()) return read_checkpoint_facts(options.checkpoint.resume).step;
  } catch (const Error&) {  // it is told where the run begins
    return 0;
  }
  if (!options.checkpoint.resume_latest) return 0;
  const std::vector<FoundCheckpoint> found = find_checkpoints(options.checkpoint.directory);
  return found.empty() ? 0 : found.back().step;
}

std::uint64_t saves_of(const ResolvedOptions& options, std::uint64_t first) {
  const std::uint64_t every = options.checkpoint.every, steps = options.steps;
  if (first >= steps) return 0;
  return every == 0 ? 1 : steps / every - first / every + (steps % every == 0 ? 0 : 1);
}

std::string existing_above(std::string folder) {
  while (!files::folder_exists(folder) && folder != "/" && folder != ".") folder = files::parent_of(folder);
  return folder;
}

// Free for checkpoints: what the swap stores on the same disk will take is theirs.
Bytes available_for(const ResolvedOptions& options, const RunPlan& plan) {
  const files::FileSystem disk = files::file_system_of(existing_above(options.checkpoint.directory));
  Bytes available = disk.free_bytes;
  if (options.resume_swap) return available;
  for (const PathSpace& path : swap_path_spaces(options, plan)) {
    if (!files::folder_exists(path.path) || files::file_system_of(path.path).device != disk.device) continue;
    available += path.given_back;
    available -= std::min(available, path.needed);
  }
  return available;
}

// Of this host's ranks.
Bytes share_of_host(Bytes bytes, const LaunchInfo& launch) {
  return divide_up(bytes * static_cast<Bytes>(launch.local_size), static_cast<Bytes>(launch.size));
}

SavePlan save_plan(const ResolvedOptions& options, Bytes bytes) {
  SavePlan plan{.saves = saves_of(options, first_step(options)),
                .keep_last = options.checkpoint.keep_last,
                .each = share_of_host(bytes, options.launch),
                .existing = {}};
  for (const FoundCheckpoint& found : find_checkpoints(options.checkpoint.directory))
    plan.existing.push_back(disk_bytes_below({found.path}));
  return plan;
}

// Without wrapping.
Bytes times(std::uint64_t count, Bytes bytes) {
  return bytes != 0 && count > ~Bytes{0} / bytes ? ~Bytes{0} : count * bytes;
}

// As many as can be kept on the disk; 0 where not even one can.
std::uint64_t most_that_can_be_kept(SavePlan plan, Bytes available) {
  plan.keep_last = std::min(plan.keep_last, available / plan.each + plan.existing.size());
  while (plan.keep_last > 0 && most_needed(plan, plan.saves) > available) --plan.keep_last;
  return plan.keep_last;
}

std::string kept_text(const SavePlan& plan) {
  const std::uint64_t together = std::min(plan.saves - 1, plan.keep_last) + 1;
  return together < 2
             ? ""
             : fmt::format(" for {} of them: --keep-last {} removes an old one when the new one is whole",
                           together, plan.keep_last);
}

void look_for_shortage(CheckpointSpace& space, const SavePlan& plan, const std::string& directory,
                       Bytes available) {
  const bool one_fits = most_needed(plan, 1) <= available;
  const Bytes needed = most_needed(plan, plan.saves);
  if (needed <= available) return;
  const std::string there = fmt::format("{} has {} free", directory, format_bytes(available));
  if (!one_fits) {
    space.shortage = fmt::format(
        "a checkpoint takes {}, and the file system of {} for it. Free some space, or give a "
        "--checkpoint-dir on a larger disk.",
        format_bytes(plan.each), there);
  } else if (plan.keep_last > 0) {
    const std::uint64_t fitting = most_that_can_be_kept(plan, available);
    space.shortage = fmt::format(
        "checkpoints of {} need {}{}, and the file system of {}. Give {}a --checkpoint-dir on a larger disk.",
        format_bytes(plan.each), format_bytes(needed), kept_text(plan), there,
        fitting > 0 ? fmt::format("--keep-last {}, or ", fitting) : "");
  } else {
    const std::uint64_t fitting = available / plan.each;
    space.warning = fmt::format(
        "the file system of {}, enough for {} of the {} checkpoints of {} that this run saves; those "
        "after them will fail until there is space. --keep-last N keeps the last N.",
        there, fitting, plan.saves, format_bytes(plan.each));
  }
}

}  // namespace

Bytes most_needed(const SavePlan& plan, std::uint64_t saves) {
  if (saves == 0) return 0;
  if (plan.keep_last == 0) return times(saves, plan.each);
  const auto bytes_of_oldest = [&](std::uint64_t count) {
    const auto begin = plan.existing.begin();
    return std::accumulate(begin, begin + static_cast<std::ptrdiff_t>(count), Bytes{0});
  };
  const std::uint64_t there = plan.existing.size(), last = std::min(saves - 1, plan.keep_last);
  // Until an old one goes, each save needs more than the one before it.
  const std::uint64_t first = std::min(last, plan.keep_last - std::min(plan.keep_last, there));
  Bytes most = plan.each;  // of the first, beside all that is there
  for (std::uint64_t made = std::max<std::uint64_t>(first, 1); made <= last; ++made) {  // before this save
    const std::uint64_t old_ones = std::min(there, plan.keep_last - made);
    const Bytes used = times(made + 1, plan.each), freed = bytes_of_oldest(there - old_ones);
    most = std::max(most, used - std::min(used, freed));
  }
  return most;
}

// A pinned one is a small file: its states are where they were.
Bytes bytes_of_checkpoint(const ResolvedOptions& options, const RunPlan& plan) {
  if (options.checkpoint.pin) return 0;
  return checkpoint_bytes(plan.request.units, kept_format(options.engine), options.launch.size,
                          static_cast<std::uint32_t>(options.checkpoint.parity));
}

CheckpointSpace checkpoint_space(const ResolvedOptions& options, const RunPlan& plan) {
  CheckpointSpace space;
  if (options.checkpoint.directory.empty() || options.checkpoint.pin) return space;
  space.bytes = bytes_of_checkpoint(options, plan);
  const SavePlan saves = save_plan(options, space.bytes);
  try {
    space.available = available_for(options, plan);
    look_for_shortage(space, saves, options.checkpoint.directory, *space.available);
  } catch (const IoError&) {  // of a folder that is not to be seen from here, which saving tells
  }
  return space;
}

void require_room_for_checkpoints(const ResolvedOptions& options, const RunPlan& plan, bool warn) {
  const CheckpointSpace space = checkpoint_space(options, plan);
  if (!space.shortage.empty()) throw DoesNotFit(space.shortage);
  if (warn && !space.warning.empty()) log_warning(space.warning);
}

}  // namespace headrace

#include "src/train/pinned_resume.h"

#include <algorithm>

#include "headrace/checkpoint.h"
#include "headrace/errors.h"
#include "headrace/files.h"
#include "headrace/shell_words.h"
#include "headrace/swap_store.h"
#include "src/train/checkpoint_choice.h"
#include "src/train/settings.h"

namespace headrace {
namespace {

// Whether a store of the checkpoint is in the folders of a rank of this run, or of one that it had then.
bool lives_in_swap_path(const CheckpointFacts& facts, const ResolvedOptions& options) {
  const int ranks = std::max(options.launch.size, static_cast<int>(facts.world_size));
  for (int rank = 0; rank < ranks; ++rank)
    for (const std::string& directory : rank_directories(options.swap_paths, rank)) {
      try {
        if (files::folder_exists(directory) &&
            std::ranges::find(facts.pinned_in, SwapStore::id_of(directory)) != facts.pinned_in.end())
          return true;
      } catch (const Error&) {  // no store, or none that can be read
      }
    }
  return false;
}

// Empty where there is none, which is refused or allowed later.
std::string checkpoint_asked_for(const ResolvedOptions& options) {
  const CheckpointSettings& settings = options.checkpoint;
  if (settings.resume_latest && find_checkpoints(settings.directory).empty()) return "";
  return checkpoint_to_load(options);
}

std::string copy_advice(const std::string& checkpoint, const std::string& flag) {
  return fmt::format("`headrace checkpoint copy {} --to DIR` first, and then {} DIR --overwrite-swap",
                     shell_word(checkpoint), flag);
}

}  // namespace

ResolvedOptions with_pinned_resume(const ResolvedOptions& options) {
  if (options.resume_swap || options.engine.optimizer_tier != Tier::nvme) return options;
  const std::string checkpoint = checkpoint_asked_for(options);
  if (checkpoint.empty()) return options;
  const CheckpointFacts facts = read_checkpoint_facts(checkpoint);
  if (facts.pin.empty() || !lives_in_swap_path(facts, options)) return options;
  if (!options.checkpoint.weights.empty())
    throw UsageError(
        fmt::format("the weights of {} are pinned in the swap store that a new run here replaces: {}; "
                    "or give another --swap-path.",
                    checkpoint, copy_advice(checkpoint, "--load-weights")));
  if (static_cast<int>(facts.world_size) != options.launch.size)
    throw UsageError(fmt::format(
        "{} is pinned in the swap stores of {} rank{}, which a run of {} replaces: {}; or give another "
        "--swap-path.",
        checkpoint, facts.world_size, facts.world_size == 1 ? "" : "s", options.launch.size,
        copy_advice(checkpoint, "--resume")));
  if (options.engine.durability != Durability::step)
    throw UsageError(fmt::format(
        "{} is pinned in the swap store, which a run with --durability none replaces: {}; or leave "
        "--durability out.",
        checkpoint, copy_advice(checkpoint, "--resume")));
  ResolvedOptions result = options;
  result.resume_swap = true;
  result.overwrite_swap = false;
  result.checkpoint.resume_latest = false;
  result.checkpoint.resume.clear();
  result.checkpoint.go_back_to = checkpoint;
  result.checkpoint.pin_to_go_back_to = facts.pin;
  return result;
}

}  // namespace headrace

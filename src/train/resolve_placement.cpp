// Where states live: refuses placements and folders that have no meaning, and settles what follows from them.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "headrace/errors.h"
#include "headrace/kernels.h"
#include "headrace/optimizer_blocks.h"
#include "src/train/config_text.h"
#include "src/train/resolve_parts.h"

namespace headrace {
namespace {

// The largest unit decides how many elements a block or a prefetch can use.
std::uint64_t largest_unit_numel(const std::vector<UnitSpec>& units) {
  std::uint64_t largest = 1;
  for (const UnitSpec& unit : units) largest = std::max(largest, make_unit_layout(unit).numel);
  return largest;
}

std::string resume_name(const Settings& settings) {
  return user_name(settings, "resume") + " swap";
}

}  // namespace

void resolve_element_counts(Settings& settings, const std::vector<UnitSpec>& units) {
  if (!settings.bucket_numel && !settings.swap_block_numel && !settings.prefetch_numel) return;
  const std::uint64_t unit = largest_unit_numel(units);
  if (settings.bucket_numel)
    settings.bucket_bytes = std::min(*settings.bucket_numel, unit) * size_of(settings.dtype);
  if (settings.swap_block_numel)
    settings.swap_block_bytes = block_chunk_bytes(state_format(settings)) *
                                divide_up(std::min(*settings.swap_block_numel, unit), norm_chunk_numel);
  if (settings.prefetch_numel)
    settings.prefetch_units =
        std::min<std::uint64_t>(divide_up(*settings.prefetch_numel, unit), units.size());
  settings.bucket_numel.reset(), settings.swap_block_numel.reset(), settings.prefetch_numel.reset();
}

void check_swap_paths(const Settings& settings) {
  const std::size_t paths = settings.swap_paths.size();
  const std::string name = user_name(settings, "swap_path"), parity = user_name(settings, "swap_parity");
  std::vector<std::filesystem::path> seen;
  for (const std::string& path : settings.swap_paths) {
    std::filesystem::path plain = (std::filesystem::path(path) / "").lexically_normal();
    if (std::find(seen.begin(), seen.end(), plain) != seen.end())
      throw UsageError(fmt::format("{} {} is given twice. Give each folder once.", name, path));
    seen.push_back(std::move(plain));
  }
  if (settings.swap_parity > 0 && settings.swap_parity >= paths)
    throw UsageError(fmt::format(
        "{} {} needs at least {} swap paths, and {} {} given: a block lies on all of them, and as "
        "many may be lost. Add another folder to {}, or lower the parity.",
        parity, settings.swap_parity, settings.swap_parity + 1, paths, paths == 1 ? "is" : "are", name));
  if (!settings.swap_path_rates.empty() && paths > 0 && settings.swap_path_rates.size() != paths)
    throw UsageError(fmt::format("{} has {} rate{} for {} swap path{}. Give one for each path, or none.",
                                 user_name(settings, "swap_path_rates"), settings.swap_path_rates.size(),
                                 settings.swap_path_rates.size() == 1 ? "" : "s", paths,
                                 paths == 1 ? "" : "s"));
}

void check_swap_block(const Settings& settings) {
  constexpr Bytes largest = Bytes{64} << 30;
  const Bytes smallest = block_chunk_bytes(state_format(settings)), given = settings.swap_block_bytes;
  if (!settings.given.contains("swap_block") || (given >= smallest && given <= largest)) return;
  throw UsageError(
      fmt::format("{}: {} is not a size from {} to {}: a block holds the states of {} elements at "
                  "least.",
                  user_name(settings, "swap_block"), format_bytes(given), format_bytes(smallest),
                  format_bytes(largest), norm_chunk_numel));
}

// DeepSpeed has a path for each kind of state, and ignores it where that kind is not on NVMe.
void resolve_parameter_path(Settings& settings) {
  const std::string path = std::exchange(settings.parameter_swap_path, {});
  if (path.empty() || settings.parameter_tier != Tier::nvme) return;
  std::vector<std::string>& paths = settings.swap_paths;
  if (paths.empty()) paths = {path};
  if (std::find(paths.begin(), paths.end(), path) == paths.end())
    throw UsageError(
        fmt::format("\"zero_optimization.offload_param.nvme_path\" is {}, and optimizer states are in {}: "
                    "both live in one place here. Give the same folder, or leave the first out.",
                    path, settings.swap_paths.front()));
}

namespace {

constexpr std::uint64_t most_pinned_checkpoints = 63;

void check_pinned_checkpoints(const Settings& settings) {
  if (!settings.pin_checkpoints || settings.checkpoint_directory.empty()) return;
  const std::string mode = user_name(settings, "checkpoint_mode");
  if (settings.optimizer_tier != Tier::nvme || settings.durability != Durability::step)
    throw UsageError(
        fmt::format("{0} pin keeps versions of a swap store: it needs optimizer states on NVMe with "
                    "--durability step. Give --offload-optimizer nvme, or {0} copy.",
                    mode));
  if (settings.master_dtype == MasterDType::none)
    throw UsageError(
        fmt::format("{0} pin needs the master parameters in the swap store, and --master-dtype none keeps "
                    "none there. Give --master-dtype bf16, or {0} copy.",
                    mode));
  if (settings.keep_last == 0 || settings.keep_last > most_pinned_checkpoints)
    throw UsageError(fmt::format(
        "{} pin needs --keep-last N, from 1 to {}: each checkpoint takes as much of the swap path as the "
        "states do, and the room is reserved when the store is made.",
        mode, most_pinned_checkpoints));
}

}  // namespace

void check_placement(const Settings& settings) {
  check_pinned_checkpoints(settings);
  if (uses_nvme(settings) && settings.swap_paths.empty())
    throw UsageError(
        fmt::format("{} on NVMe need a folder to live in: give --swap-path DIR (or "
                    "zero_optimization.offload_optimizer.nvme_path).",
                    settings.optimizer_tier == Tier::nvme   ? "optimizer states"
                    : settings.parameter_tier == Tier::nvme ? "parameters"
                                                            : "gradients"));
  if (settings.resume_swap && settings.optimizer_tier != Tier::nvme)
    throw UsageError(fmt::format(
        "{} needs optimizer states on NVMe: give --offload-optimizer nvme and the --swap-path of the earlier "
        "run.",
        resume_name(settings)));
  if (settings.resume_swap && settings.durability == Durability::none)
    throw UsageError(
        fmt::format("{} needs {} step: with \"none\" no step is ever committed, so there is nothing to "
                    "continue from.",
                    resume_name(settings), user_name(settings, "durability")));
  if (settings.resume_swap && settings.overwrite_swap)
    throw UsageError(
        fmt::format("{} continues the run in the swap path, and {} deletes it. Give one of them.",
                    resume_name(settings), user_name(settings, "overwrite_swap")));
  if (settings.resume_checkpoint == "latest" && settings.checkpoint_directory.empty())
    throw UsageError(
        fmt::format("{} latest needs {}: give --checkpoint-dir, or the path of a checkpoint in the "
                    "place of \"latest\".",
                    user_name(settings, "resume"), "the folder of the run's checkpoints"));
  if (!settings.load_weights.empty() && (settings.resume_swap || !settings.resume_checkpoint.empty()))
    throw UsageError(fmt::format("{} begins a new run, and {} goes on with one. Give one of them.",
                                 user_name(settings, "load_weights"), user_name(settings, "resume")));
  if (!settings.swap_paths.empty() && !uses_nvme(settings))
    throw UsageError(fmt::format(
        "{} {} would not be used: nothing is placed on NVMe. Add --offload-optimizer nvme, or leave the path "
        "out.",
        user_name(settings, "swap_path"), settings.swap_paths.front()));
}

}  // namespace headrace

#include "src/train/checkpoint_choice.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "headrace/checkpoint_report.h"
#include "headrace/errors.h"
#include "headrace/files.h"
#include "headrace/log.h"
#include "headrace/model_folder.h"

namespace headrace {
namespace {

std::string newest_checkpoint(const ResolvedOptions& options) {
  const std::string& directory = options.checkpoint.directory;
  const std::vector<FoundCheckpoint> found = find_checkpoints(directory);
  if (const std::vector<std::string> damaged = damaged_checkpoints(directory); !damaged.empty())
    throw UsageError(fmt::format(
        "--resume latest: the manifest of {} is missing or damaged, so which one is the newest cannot be "
        "told. {} Remove or move away what is damaged to go on without it.",
        fmt::join(damaged, ", "),
        found.empty()
            ? "There is no other."
            : fmt::format("--resume {} goes on from the newest of the others.", found.back().path)));
  if (!found.empty()) return found.back().path;
  if (options.checkpoint.allow_fresh) {
    log_info(fmt::format("no checkpoint in {} yet: a new run", directory));
    return "";
  }
  throw UsageError(
      fmt::format("--resume latest: there is no checkpoint in {}{}. Give the folder of the run that is "
                  "to go on, or --allow-fresh to start a new one where there is none.",
                  directory, files::folder_exists(directory) ? "" : ", which does not exist"));
}

// The folder of a run's checkpoints is easily taken for one of them.
std::string given_checkpoint(const std::string& path, std::string_view flag) {
  if (is_checkpoint(path)) return path;
  const std::vector<FoundCheckpoint> inside = find_checkpoints(path);
  if (!inside.empty())
    throw UsageError(fmt::format("{}: {} holds {} checkpoint{}; give one of them, such as {}.", flag, path,
                                 inside.size(), inside.size() == 1 ? "" : "s", inside.back().path));
  throw UsageError(fmt::format(
      "{}: {} is no checkpoint: {}. A checkpoint is a folder like step-00001200 with a manifest.json.", flag,
      path, files::folder_exists(path) ? "it has no manifest.json" : "there is no such folder"));
}

}  // namespace

std::string checkpoint_to_load(const ResolvedOptions& options) {
  const CheckpointSettings& settings = options.checkpoint;
  if (settings.resume_latest) return newest_checkpoint(options);
  if (!settings.resume.empty()) return given_checkpoint(settings.resume, "--resume");
  return settings.weights.empty() ? "" : given_checkpoint(settings.weights, "--load-weights");
}

StateFormat kept_states(const ResolvedOptions& options) {
  StateFormat format = options.engine.state_format();
  if (format.master == MasterDType::none)
    format.master = options.engine.dtype == DType::f32 ? MasterDType::f32 : MasterDType::bf16;
  return format;
}

void report_conversions(const ResolvedOptions& options, const CheckpointFacts& stored) {
  const std::vector<std::string> texts = conversions(stored.states, kept_states(options));
  if (texts.empty()) return;
  const bool loses = std::ranges::any_of(
      texts, [](const std::string& text) { return text.find("rounded") != std::string::npos; });
  const std::string text = fmt::format("{}: {}", stored.path, fmt::join(texts, ", "));
  if (loses)
    log_warning(text + "; what is rounded away is lost to this run");
  else
    log_info(text);
}

void claim_checkpoints(const ResolvedOptions& options, bool goes_on) {
  const std::string& directory = options.checkpoint.directory;
  require_free_checkpoints(directory);
  const std::vector<FoundCheckpoint> found = find_checkpoints(directory);
  if (goes_on || found.empty()) return;
  log_warning(
      fmt::format("{} holds {} checkpoint{} of an earlier run, the newest {}. This new run replaces those of "
                  "the steps that it saves{}: --resume latest goes on from the newest, another "
                  "--checkpoint-dir keeps them.",
                  directory, found.size(), found.size() == 1 ? "" : "s", found.back().path,
                  options.checkpoint.keep_last > 0
                      ? fmt::format(", and removes all but the last {}", options.checkpoint.keep_last)
                      : ""));
}

CheckpointOptions checkpoint_options(const ResolvedOptions& options) {
  return {.directory = options.checkpoint.directory,
          .keep_last = options.checkpoint.keep_last,
          .parity = static_cast<std::uint32_t>(options.checkpoint.parity),
          .leads_host = options.launch.local_rank == 0,
          .written_by = "headrace " HEADRACE_VERSION,
          .model = model_config_text(options.model, options.engine.dtype),
          .pin = options.checkpoint.pin};
}

}  // namespace headrace

#include "src/train/checkpoint_choice.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "headrace/checkpoint_report.h"
#include "headrace/errors.h"
#include "headrace/files.h"
#include "headrace/kept_format.h"
#include "headrace/log.h"
#include "headrace/model_folder.h"

namespace headrace {
namespace {

namespace fs = std::filesystem;

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
  throw UsageError(fmt::format("{}: {}", flag, not_a_checkpoint(path)));
}

}  // namespace

std::string checkpoint_to_load(const ResolvedOptions& options) {
  const CheckpointSettings& settings = options.checkpoint;
  if (settings.resume_latest) return newest_checkpoint(options);
  if (!settings.resume.empty()) return given_checkpoint(settings.resume, "--resume");
  return settings.weights.empty() ? "" : given_checkpoint(settings.weights, "--load-weights");
}

void report_conversions(const ResolvedOptions& options, const CheckpointFacts& stored) {
  const CheckpointSettings& settings = options.checkpoint;
  if (settings.weights.empty() && !settings.directory.empty() && stored.parity > 0 && settings.parity == 0)
    log_warning(
        fmt::format("{0} has parity {1}, and this run saves without: --checkpoint-parity {1} goes on with it",
                    stored.path, stored.parity));
  StateFormat wanted = kept_format(options.engine);
  if (!settings.weights.empty()) wanted.moments = stored.states.moments;  // they begin anew
  const std::vector<std::string> texts = conversions(stored.states, wanted);
  if (texts.empty()) return;
  const bool loses = std::ranges::any_of(
      texts, [](const std::string& text) { return text.find("rounded") != std::string::npos; });
  const std::string text = fmt::format("{}: {}", stored.path, fmt::join(texts, ", "));
  if (loses)
    log_warning(text + "; what is rounded away is lost to this run");
  else
    log_info(text);
}

void check_checkpoint_directory(const ResolvedOptions& options) {
  const std::string& directory = options.checkpoint.directory;
  if (directory.empty()) return;
  std::error_code error;
  fs::path place = fs::weakly_canonical(directory, error);
  for (const std::string& path : options.swap_paths)
    if (!error && fs::weakly_canonical(path, error) == place)
      throw UsageError(fmt::format("--checkpoint-dir {} is {} too. Give a folder of its own, such as {}.",
                                   directory, options.swap_path_name, files::join(directory, "checkpoints")));
  for (; !error && place.has_relative_path(); place = place.parent_path())
    if (is_named_as_checkpoint(place.string()) && is_checkpoint(place.string()))
      throw UsageError(
          fmt::format("--checkpoint-dir {} lies in a checkpoint. Give the folder of the run, {}.", directory,
                      place.parent_path().string()));
}

namespace {

// A checkpoint of another folder says nothing of those in this one.
bool is_of_folder(const std::string& checkpoint, const std::string& directory) {
  return files::parent_of(files::absolute(checkpoint)) == files::absolute(directory);
}

}  // namespace

void claim_checkpoints(const ResolvedOptions& options, const std::optional<std::string>& goes_on_from) {
  const std::string& directory = options.checkpoint.directory;
  try {
    require_free_checkpoints(directory);
  } catch (const IoError& error) {
    throw UsageError(
        fmt::format("--checkpoint-dir: {} Give a folder that this user can make and write.", error.what()));
  }
  const std::vector<FoundCheckpoint> found = find_checkpoints(directory);
  if (found.empty()) return;
  if (goes_on_from && (goes_on_from->empty() || is_of_folder(*goes_on_from, directory))) return;
  const std::string there = fmt::format("{} holds {} checkpoint{} of another run, the newest {}", directory,
                                        found.size(), found.size() == 1 ? "" : "s", found.back().path);
  if (!options.checkpoint.overwrite)
    throw UsageError(
        fmt::format("{}. Give --resume latest to go on from it, another --checkpoint-dir to keep them, or "
                    "--overwrite-checkpoints to save among them.",
                    there));
  log_info(fmt::format(
      "{}: this run replaces those of the steps that it saves{}", there,
      options.checkpoint.keep_last > 0
          ? fmt::format(", and removes all but the last {} of all of them", options.checkpoint.keep_last)
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

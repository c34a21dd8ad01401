// From the draft to ResolvedOptions: derives what follows from other values and refuses combinations that
// have no meaning.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "headrace/checkpoint.h"
#include "headrace/errors.h"
#include "headrace/model_folder.h"
#include "src/train/parameter_groups.h"
#include "src/train/resolve_parts.h"

namespace headrace {
namespace {

std::string world_size_source(const LaunchInfo& launch) {
  return launch.launcher == "none" ? "one process, no launcher" : launch.launcher;
}

constexpr std::uint64_t default_sequence_length = 256;

void resolve_sequence(Settings& settings, const ModelConfig& model) {
  const auto positions = static_cast<std::uint64_t>(model.max_positions);
  if (!settings.sequence_length) settings.sequence_length = std::min(default_sequence_length, positions);
  if (*settings.sequence_length > positions)
    throw UsageError(fmt::format("{} {} is more than the {} positions that {} has.",
                                 user_name(settings, "sequence_length"), *settings.sequence_length, positions,
                                 model.name));
}

EngineOptions engine_options(const Settings& settings, const BatchSizes& batch, int rank) {
  EngineOptions engine;
  engine.stage = static_cast<int>(settings.stage);
  engine.optimizer_tier = settings.optimizer_tier;
  engine.parameter_tier = settings.parameter_tier;
  engine.gradient_tier = settings.gradient_tier;
  engine.dtype = settings.dtype;
  engine.accumulation = static_cast<int>(batch.accumulation);
  engine.clip = settings.clip;
  engine.optimizer = optimizer_arguments(settings);
  engine.groups = engine_groups(settings);
  engine.master_dtype = settings.master_dtype;
  engine.moment_dtype = settings.moment_dtype;
  engine.loss_scale = settings.loss_scale;
  engine.seed = settings.seed;
  engine.host_memory_bytes = settings.host_memory_bytes;
  engine.bucket_bytes = settings.bucket_bytes;
  engine.swap_block_bytes = settings.swap_block_bytes;
  engine.swap_buffers = static_cast<std::uint32_t>(settings.swap_buffers);
  if (settings.async_save && !settings.checkpoint_directory.empty())
    engine.snapshot_buffers = static_cast<std::uint32_t>(settings.save_buffers);
  engine.parameter_buffers = static_cast<std::uint32_t>(settings.parameter_buffers);
  engine.gradient_buffers = static_cast<std::uint32_t>(settings.gradient_buffers);
  engine.prefetch_units = static_cast<std::uint32_t>(settings.prefetch_units);
  engine.persistence_numel = settings.persistence_numel;
  engine.retain_adjacent = settings.retain_adjacent;
  engine.pin_memory = settings.pin_memory;
  engine.swap_directories = rank_directories(settings.swap_paths, rank);
  engine.swap_parity = static_cast<std::uint32_t>(settings.swap_parity);
  engine.swap_path_rates = settings.swap_path_rates;
  engine.durability = settings.durability;
  // The new one is pinned before the oldest is released.
  if (settings.pin_checkpoints) engine.swap_pins = static_cast<std::uint32_t>(settings.keep_last + 1);
  return engine;
}

// That fp32 holds what the largest rate comes to in the first update, beside the other hyper-parameters.
void check_rate(const Settings& settings, const ResolvedOptions& options) {
  const ScheduleOptions& schedule = options.schedule;
  const double largest = std::max({schedule.peak, schedule.start, schedule.floor});
  const EngineOptions& engine = options.engine;
  try {
    arguments_of(engine.groups, engine.optimizer, learning_rates_of(engine.groups, largest));
  } catch (const UsageError& error) {
    throw UsageError(fmt::format("{} is too large at {:g}: {}",
                                 settings.scheduler.maximum_rate ? "\"scheduler.params.warmup_max_lr\""
                                                                 : user_name(settings, "learning_rate"),
                                 largest, error.what()));
  }
}

void check_groups(const ResolvedOptions& options, std::vector<UnitSpec> units) {
  if (!options.named_groups.empty()) assign_groups(units, options);
}

// A preset's name is the preset, whatever lies in the working folder; ./NAME is a folder.
bool names_model_folder(const std::string& model) {
  const std::vector<std::string> presets = model_preset_names();
  if (std::find(presets.begin(), presets.end(), model) != presets.end()) return false;
  std::error_code error;
  return model.find('/') != std::string::npos || std::filesystem::is_directory(model, error);
}

IoKind resolve_io(const Settings& settings) {
  const std::pair<const char*, bool> of_io_uring[] = {{"require_io_uring", settings.require_io_uring},
                                                      {"poll_completions", settings.poll_completions},
                                                      {"poll_submissions", settings.poll_submissions}};
  for (const auto& [name, asked] : of_io_uring)
    if (asked && settings.io == IoKind::threads)
      throw UsageError(fmt::format("{} and {} threads exclude each other. Leave one of them out.",
                                   user_name(settings, name), user_name(settings, "io")));
  return settings.require_io_uring ? IoKind::io_uring : settings.io;
}

BatchSizes printed_batch(const BatchSizes& given, const BatchSizes& resolved) {
  if (given.global != 0) return given;
  return {.global = 0, .micro = resolved.micro, .accumulation = resolved.accumulation};
}

ModelOptions model_options(const Settings& settings, const BatchSizes& batch) {
  return {.dtype = settings.dtype,
          .batch = static_cast<int>(batch.micro),
          .sequence = static_cast<int>(*settings.sequence_length),
          .recompute = settings.recompute,
          .fused_head = settings.fused_head};
}

void copy_run(const Settings& settings, ResolvedOptions& options) {
  options.steps = settings.steps;
  options.seed = settings.seed;
  options.data_path = settings.data_path;
  options.eval_path = settings.eval_path;
  options.token_bits = settings.token_bits;
  options.eval_every = settings.eval_every;
  options.eval_batches = settings.eval_batches;
  options.resume_swap = settings.resume_swap;
  options.overwrite_swap = settings.overwrite_swap;
  options.checkpoint = {.directory = settings.checkpoint_directory,
                        .every = settings.save_every,
                        .keep_last = settings.keep_last,
                        .parity = settings.checkpoint_parity,
                        .asynchronous = settings.async_save,
                        .pin = settings.pin_checkpoints,
                        .resume_latest = settings.resume_checkpoint == "latest",
                        .allow_fresh = settings.allow_fresh,
                        .overwrite = settings.overwrite_checkpoints,
                        .resume = settings.resume_checkpoint == "latest" ? "" : settings.resume_checkpoint,
                        .weights = settings.load_weights,
                        .go_back_to = {},
                        .pin_to_go_back_to = {}};
  options.metrics_path = settings.metrics_path;
  options.log_every = settings.log_every;
  options.timeout_seconds = settings.timeout_seconds;
  options.quiet = settings.quiet;
}

void copy_machine(const Settings& settings, ResolvedOptions& options) {
  options.device = settings.device;
  options.device_memory_bytes = settings.device_memory_bytes;
  options.host_memory_bytes = settings.host_memory_bytes;
  options.threads = static_cast<int>(settings.threads);
  options.link_bytes_per_second = static_cast<double>(settings.link_bytes_per_second);
}

void copy_storage(const Settings& settings, ResolvedOptions& options) {
  options.io = resolve_io(settings);
  options.swap_paths = settings.swap_paths;
  options.swap_path_name = user_name(settings, "swap_path");
  if (settings.io_depth) options.io_depth = static_cast<std::uint32_t>(*settings.io_depth);
  options.io_request_bytes = settings.io_request_bytes;
  options.poll_completions = settings.poll_completions;
  options.poll_submissions = settings.poll_submissions;
  options.swap_cache_bytes = settings.swap_cache_bytes;
}

// Settles what the settings leave to each other, in the order in which one needs the other.
void settle_model(Settings& settings, ResolvedOptions& options) {
  if (settings.model.empty())
    throw UsageError(fmt::format("no model is given: --model {}, or a folder with a config.json.",
                                 fmt::join(model_preset_names(), "|")));
  if (names_model_folder(settings.model)) options.model_folder = settings.model;
  options.model =
      options.model_folder.empty() ? model_preset(settings.model) : read_model_config(options.model_folder);
  resolve_sequence(settings, options.model);
}

// What describes the native model, or is done by its trainer.
void refuse_native_settings(const Settings& settings) {
  for (const std::string_view name :
       {"model", "data", "eval_data", "sequence_length", "steps", "recompute", "fused_head"})
    if (settings.given.contains(name))
      throw UsageError(
          fmt::format("{} is of `headrace train`; a model of one's own is trained by one's own loop. "
                      "Leave it out.",
                      user_name(settings, name)));
}

void settle_batch(Settings& settings, const LaunchInfo& launch, ResolvedOptions& options) {
  settings.batch.world = static_cast<std::uint64_t>(launch.size);
  options.batch = resolve_batch(settings.batch, world_size_source(launch));
  settings.batch = printed_batch(settings.batch, options.batch);
}

void settle_states(Settings& settings, const std::vector<UnitSpec>& units) {
  resolve_optimizer(settings);
  resolve_scheduler_peak(settings);
  resolve_parameter_path(settings);
  check_placement(settings);
  refuse_without_effect(settings);
  refuse_contradictions(settings);
  check_swap_paths(settings);
  resolve_element_counts(settings, units);
  check_swap_block(settings);
}

void check_checkpoint_parity(const Settings& settings, const LaunchInfo& launch) {
  const auto ranks = static_cast<std::uint64_t>(launch.size);
  if (settings.checkpoint_parity == 0 || ranks + settings.checkpoint_parity <= most_parity_files) return;
  throw UsageError(fmt::format(
      "{} {} with {} ranks: files of ranks and of parity are {} at most. Leave parity out, or use fewer "
      "ranks.",
      user_name(settings, "checkpoint_parity"), settings.checkpoint_parity, ranks, most_parity_files));
}

}  // namespace

std::string rank_directory(const std::string& swap_path, int rank) {
  return swap_path.empty() ? ""
                           : (std::filesystem::path(swap_path) / fmt::format("rank-{:05}", rank)).string();
}

std::vector<std::string> rank_directories(const std::vector<std::string>& swap_paths, int rank) {
  std::vector<std::string> directories;
  for (const std::string& path : swap_paths) directories.push_back(rank_directory(path, rank));
  return directories;
}

ResolvedOptions resolve_settings(Settings settings, const LaunchInfo& launch,
                                 const std::vector<UnitSpec>* given_units) {
  ResolvedOptions options;
  if (given_units != nullptr)
    refuse_native_settings(settings);
  else
    settle_model(settings, options);
  settle_batch(settings, launch, options);
  std::vector<UnitSpec> units;
  if (given_units != nullptr) {
    units = *given_units;
  } else {
    options.model_options = model_options(settings, options.batch);
    units = make_model(options.model, options.model_options)->unit_specs();
  }
  settle_states(settings, units);
  options.engine = engine_options(settings, options.batch, launch.rank);
  options.named_groups = settings.parameter_groups;
  options.parameter_groups_name = user_name(settings, "parameter_groups");
  resolve_placement(options.engine);
  check_groups(options, std::move(units));
  (void)initial_loss_scale(options.engine);
  options.schedule = resolve_schedule(settings);
  check_rate(settings, options);
  copy_run(settings, options);
  copy_machine(settings, options);
  copy_storage(settings, options);
  options.launch = launch;
  check_checkpoint_parity(settings, launch);
  options.effective_config = print_config(settings);
  return options;
}

}  // namespace headrace

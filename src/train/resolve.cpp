// From the draft to ResolvedOptions: derives what follows from other values and refuses combinations that
// have no meaning.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "headrace/errors.h"
#include "headrace/kernels.h"
#include "headrace/optimizer_blocks.h"
#include "src/train/config_text.h"
#include "src/train/parameter_groups.h"
#include "src/train/settings.h"

namespace headrace {
namespace {

std::string flag_of(std::string_view setting) {
  std::string flag = fmt::format("--{}", setting);
  std::replace(flag.begin(), flag.end(), '_', '-');
  return flag;
}

std::string world_size_source(const LaunchInfo& launch) {
  return launch.launcher == "none" ? "one process, no launcher" : launch.launcher;
}

double given_or(const std::optional<double>& value, double otherwise) {
  return value ? *value : otherwise;
}

void refuse_parameter(bool given, std::string_view name, std::string_view type, std::string_view instead) {
  if (given)
    throw UsageError(
        fmt::format("\"scheduler.params.{}\" has no meaning for the scheduler {}.{}", name, type, instead));
}

// DeepSpeed's schedulers, with its defaults (REFERENCE section 4); iteration i is its last_batch_iteration.
ScheduleOptions deepspeed_schedule(const Settings& settings) {
  using Type = DeepSpeedScheduler::Type;
  const DeepSpeedScheduler& given = settings.scheduler;
  ScheduleOptions schedule;
  schedule.warmup =
      given.logarithmic ? ScheduleOptions::Warmup::deepspeed_log : ScheduleOptions::Warmup::deepspeed_linear;
  schedule.warmup_steps = given.warmup_steps.value_or(1000);
  schedule.total_steps = given.total_steps.value_or(settings.steps);
  schedule.peak = given_or(given.maximum_rate, *settings.learning_rate);
  if (given.type == Type::warmup_cosine) {
    refuse_parameter(given.minimum_rate.has_value(), "warmup_min_lr", "WarmupCosineLR",
                     " Use warmup_min_ratio.");
    refuse_parameter(given.maximum_rate.has_value(), "warmup_max_lr", "WarmupCosineLR",
                     " Its peak is optimizer.params.lr.");
    schedule.decay = ScheduleOptions::Decay::cosine;
    schedule.start = schedule.peak * given_or(given.minimum_ratio, 0);
    schedule.floor = schedule.peak * given_or(given.cosine_minimum_ratio, 1e-4);
    return schedule;
  }
  const std::string_view type = given.type == Type::warmup ? "WarmupLR" : "WarmupDecayLR";
  refuse_parameter(given.minimum_ratio.has_value(), "warmup_min_ratio", type, " Use warmup_min_lr.");
  refuse_parameter(given.cosine_minimum_ratio.has_value(), "cos_min_ratio", type,
                   " Use the scheduler WarmupCosineLR.");
  if (given.type == Type::warmup)
    refuse_parameter(given.total_steps.has_value(), "total_num_steps", type,
                     " Use the scheduler WarmupDecayLR.");
  schedule.decay =
      given.type == Type::warmup ? ScheduleOptions::Decay::constant : ScheduleOptions::Decay::linear;
  schedule.start = given_or(given.minimum_rate, 0);
  schedule.floor = 0;
  return schedule;
}

ScheduleOptions resolve_schedule(const Settings& settings) {
  if (settings.scheduler.type != DeepSpeedScheduler::Type::none) return deepspeed_schedule(settings);
  return {.decay = settings.decay,
          .warmup = ScheduleOptions::Warmup::linear,
          .peak = *settings.learning_rate,
          .start = 0.0,
          .floor = *settings.learning_rate * settings.minimum_rate_ratio,
          .warmup_steps = settings.warmup_steps.value_or(0),
          .total_steps = settings.steps};
}

// The largest unit decides how many elements a block or a prefetch can use.
std::uint64_t largest_unit_numel(const ModelConfig& model, const ModelOptions& options) {
  std::uint64_t largest = 1;
  for (UnitSpec& unit : make_gpt2(model, options)->unit_specs())
    largest = std::max(largest, make_unit_layout(std::move(unit)).numel);
  return largest;
}

// DeepSpeed gives these in elements, often far above any model's size.
void resolve_element_counts(Settings& settings, const ModelConfig& model, const ModelOptions& options) {
  if (!settings.bucket_numel && !settings.swap_block_numel && !settings.prefetch_numel) return;
  const std::uint64_t unit = largest_unit_numel(model, options);
  if (settings.bucket_numel)
    settings.bucket_bytes = std::min(*settings.bucket_numel, unit) * size_of(settings.dtype);
  if (settings.swap_block_numel)
    settings.swap_block_bytes = block_chunk_bytes(state_format(settings)) *
                                divide_up(std::min(*settings.swap_block_numel, unit), norm_chunk_numel);
  if (settings.prefetch_numel)
    settings.prefetch_units = std::min<std::uint64_t>(divide_up(*settings.prefetch_numel, unit),
                                                      static_cast<std::uint64_t>(model.layers) + 2);
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

std::string resume_name(const Settings& settings) {
  return user_name(settings, "resume") + " swap";
}

void check_placement(const Settings& settings) {
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
  if (!settings.swap_paths.empty() && !uses_nvme(settings))
    throw UsageError(fmt::format(
        "{} {} would not be used: nothing is placed on NVMe. Add --offload-optimizer nvme, or leave the path "
        "out.",
        user_name(settings, "swap_path"), settings.swap_paths.front()));
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
  return engine;
}

// A DeepSpeed scheduler as its section again: the native keys cannot say all of it.
Json scheduler_section(const DeepSpeedScheduler& scheduler) {
  constexpr const char* types[] = {"", "WarmupLR", "WarmupDecayLR", "WarmupCosineLR"};
  Json params = {{"warmup_type", scheduler.logarithmic ? "log" : "linear"}};
  const auto add = [&](const char* name, const auto& value) {
    if (value) params[name] = *value;
  };
  add("warmup_min_lr", scheduler.minimum_rate);
  add("warmup_max_lr", scheduler.maximum_rate);
  add("warmup_num_steps", scheduler.warmup_steps);
  add("total_num_steps", scheduler.total_steps);
  add("warmup_min_ratio", scheduler.minimum_ratio);
  add("cos_min_ratio", scheduler.cosine_minimum_ratio);
  return {{"type", types[static_cast<std::size_t>(scheduler.type)]}, {"params", std::move(params)}};
}

void check_groups(const ResolvedOptions& options) {
  if (options.named_groups.empty()) return;
  std::vector<UnitSpec> units = make_gpt2(options.model, options.model_options)->unit_specs();
  assign_groups(units, options);
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

// As given: what follows from the world size is left out, so that the text means the same with any number of
// ranks.
std::string print_config(const Settings& settings) {
  const bool native_schedule = settings.scheduler.type == DeepSpeedScheduler::Type::none;
  Json config = Json::object(), native = Json::object();
  for (const NativeSetting& setting : native_settings()) {
    const std::string& name = setting.info.name;
    if (!native_schedule && (name == "schedule" || name == "warmup_steps" || name == "minimum_rate_ratio"))
      continue;
    if (!has_effect(settings, name)) continue;
    if (Json value = setting.get(settings); !value.is_null()) native[name] = std::move(value);
  }
  if (!native_schedule) config["scheduler"] = scheduler_section(settings.scheduler);
  config["headrace"] = std::move(native);
  return config.dump(2);
}

// Empty where the blocks are as large as was asked for.
std::string block_size_note(const Settings& settings) {
  if (!settings.given.contains("swap_block") || settings.swap_block_numel || !uses_nvme(settings)) return "";
  const Bytes given = settings.swap_block_bytes;
  const StateFormat format = state_format(settings);
  const Bytes used = state_bytes(format, block_numel(given, format));
  if (used == given) return "";
  return fmt::format("{}: blocks hold whole chunks of {} elements, so {} bytes instead of {}.",
                     user_name(settings, "swap_block"), norm_chunk_numel, used, given);
}

// What was accepted and changes nothing, or less than it may seem.
std::vector<std::string> notes(const Settings& settings, UnusedKeys unused, const ScheduleOptions& schedule) {
  std::vector<std::string> result;
  for (std::string& group : hints_without_effect(settings)) unused.hints.push_back(std::move(group));
  if (!unused.hints.empty())
    result.push_back(
        fmt::format("performance hints without effect here, not used: {}.", fmt::join(unused.hints, ", ")));
  if (!unused.defaults.empty())
    result.push_back(
        fmt::format("\"auto\" keeps Headrace's default for {}.", fmt::join(unused.defaults, ", ")));
  if (std::string note = block_size_note(settings); !note.empty()) result.push_back(std::move(note));
  if (schedule.warmup_steps > settings.steps)
    result.push_back(
        fmt::format("the learning rate never reaches its peak: warm-up takes {} steps, the run {}.",
                    schedule.warmup_steps, settings.steps));
  return result;
}

}  // namespace

std::string user_name(const Settings& settings, std::string_view name) {
  const auto given = settings.given.find(name);
  if (given == settings.given.end()) return flag_of(name);
  return given->second.starts_with("--") ? given->second : fmt::format("\"{}\"", given->second);
}

std::string rank_directory(const std::string& swap_path, int rank) {
  return swap_path.empty() ? ""
                           : (std::filesystem::path(swap_path) / fmt::format("rank-{:05}", rank)).string();
}

std::vector<std::string> rank_directories(const std::vector<std::string>& swap_paths, int rank) {
  std::vector<std::string> directories;
  for (const std::string& path : swap_paths) directories.push_back(rank_directory(path, rank));
  return directories;
}

ResolvedOptions resolve_settings(Settings settings, const LaunchInfo& launch) {
  if (settings.model.empty())
    throw UsageError(fmt::format("no model is given: --model {}.", fmt::join(model_preset_names(), "|")));
  ResolvedOptions options;
  options.model = model_preset(settings.model);
  resolve_sequence(settings, options.model);
  settings.batch.world = static_cast<std::uint64_t>(launch.size);
  options.batch = resolve_batch(settings.batch, world_size_source(launch));
  settings.batch = printed_batch(settings.batch, options.batch);
  options.model_options = {.dtype = settings.dtype,
                           .batch = static_cast<int>(options.batch.micro),
                           .sequence = static_cast<int>(*settings.sequence_length),
                           .recompute = settings.recompute,
                           .fused_head = settings.fused_head};
  resolve_optimizer(settings);
  resolve_parameter_path(settings);
  check_placement(settings);
  refuse_without_effect(settings);
  check_swap_paths(settings);
  resolve_element_counts(settings, options.model, options.model_options);
  check_swap_block(settings);
  options.engine = engine_options(settings, options.batch, launch.rank);
  options.named_groups = settings.parameter_groups;
  options.parameter_groups_name = user_name(settings, "parameter_groups");
  resolve_placement(options.engine);
  check_groups(options);
  (void)initial_loss_scale(options.engine);
  options.schedule = resolve_schedule(settings);
  options.steps = settings.steps;
  options.seed = settings.seed;
  options.data_path = settings.data_path;
  options.eval_path = settings.eval_path;
  options.eval_every = settings.eval_every;
  options.eval_batches = settings.eval_batches;
  options.device = settings.device;
  options.device_memory_bytes = settings.device_memory_bytes;
  options.host_memory_bytes = settings.host_memory_bytes;
  options.threads = static_cast<int>(settings.threads);
  options.link_bytes_per_second = static_cast<double>(settings.link_bytes_per_second);
  options.io = resolve_io(settings);
  options.swap_paths = settings.swap_paths;
  options.swap_path_name = user_name(settings, "swap_path");
  if (settings.io_depth) options.io_depth = static_cast<std::uint32_t>(*settings.io_depth);
  options.io_request_bytes = settings.io_request_bytes;
  options.poll_completions = settings.poll_completions;
  options.poll_submissions = settings.poll_submissions;
  options.swap_cache_bytes = settings.swap_cache_bytes;
  options.resume_swap = settings.resume_swap;
  options.overwrite_swap = settings.overwrite_swap;
  options.metrics_path = settings.metrics_path;
  options.log_every = settings.log_every;
  options.timeout_seconds = settings.timeout_seconds;
  options.quiet = settings.quiet;
  options.launch = launch;
  options.effective_config = print_config(settings);
  return options;
}

struct ConfigDraft::Impl {
  Settings settings;
  UnusedKeys unused;
};

ConfigDraft::ConfigDraft() : impl_(std::make_unique<Impl>()) {}
ConfigDraft::~ConfigDraft() = default;

void ConfigDraft::read_file(const std::string& path) {
  read_text(read_config_text(path), path);
}

void ConfigDraft::read_text(std::string_view json, const std::string& origin) {
  const UnusedKeys unused = apply_config(parse_config_text(json, origin), origin, impl_->settings);
  const auto append = [](std::vector<std::string>& to, const std::vector<std::string>& from) {
    to.insert(to.end(), from.begin(), from.end());
  };
  append(impl_->unused.hints, unused.hints);
  append(impl_->unused.defaults, unused.defaults);
}

namespace {

void set_from_flag(Settings& settings, const std::string& name, Json value) {
  const NativeSetting* setting = find_native(name);
  HEADRACE_CHECK(setting != nullptr, "{} is not a setting", name);
  const std::string flag = flag_of(name);
  setting->set(settings, ConfigValue(flag, std::move(value)));
  settings.given[name] = flag;
}

}  // namespace

void ConfigDraft::set_flag(const std::string& name, const std::string& value) {
  set_from_flag(impl_->settings, name, value);
}

void ConfigDraft::set_flag(const std::string& name, const std::vector<std::string>& values) {
  set_from_flag(impl_->settings, name, values);
}

ResolvedOptions ConfigDraft::resolve(const LaunchInfo& launch) const {
  ResolvedOptions options = resolve_settings(impl_->settings, launch);
  options.notes = notes(impl_->settings, impl_->unused, options.schedule);
  return options;
}

}  // namespace headrace

// Settings that mean something only beside others.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "headrace/errors.h"
#include "src/train/settings.h"

namespace headrace {
namespace {

// `hint`: without the condition the setting is listed in a note; others are refused, but for the value
// `inert` (JSON), which says what is so without the condition too.
struct Condition {
  std::string_view setting;
  bool hint;
  std::string_view needs;
  bool (*met)(const Settings&);
  std::string_view inert = "";
};

bool optimizer_on_nvme(const Settings& settings) {
  return settings.optimizer_tier == Tier::nvme;
}
bool parameters_on_nvme(const Settings& settings) {
  return settings.parameter_tier == Tier::nvme;
}
bool gradients_on_nvme(const Settings& settings) {
  return settings.gradient_tier == Tier::nvme;
}
bool shards_parameters(const Settings& settings) {
  return settings.stage == 3;
}
bool offloads(const Settings& settings) {
  return settings.optimizer_tier != Tier::device || settings.gradient_tier != Tier::device ||
         settings.parameter_tier != Tier::device;
}
bool evaluates(const Settings& settings) {
  return !settings.eval_path.empty();
}
bool reads_ids(const Settings& settings) {
  return settings.data_path.ends_with(".bin") || settings.eval_path.ends_with(".bin");
}
bool decays(const Settings& settings) {
  return settings.scheduler.type == DeepSpeedScheduler::Type::none &&
         settings.decay != ScheduleOptions::Decay::constant;
}

template <OptimizerChoice... choices>
bool is_one_of(const Settings& settings) {
  return ((settings.optimizer == choices) || ...);
}
bool keeps_momentum(const Settings& settings) {
  return settings.optimizer == OptimizerChoice::sgd && settings.momentum > 0;
}
bool keeps_moments(const Settings& settings) {
  return moment_count(state_format(settings)) > 0;
}
bool scales_loss(const Settings& settings) {
  return settings.dtype == DType::f16;
}
bool searches_loss_scale(const Settings& settings) {
  return scales_loss(settings) && settings.loss_scale.fixed == 0;
}

bool saves(const Settings& settings) {
  return !settings.checkpoint_directory.empty();
}
bool copies(const Settings& settings) {
  return saves(settings) && !settings.pin_checkpoints;
}
bool saves_beside(const Settings& settings) {
  return copies(settings) && settings.async_save;
}
bool does_io(const Settings& settings) {
  return uses_nvme(settings) || saves(settings) || !settings.resume_checkpoint.empty() ||
         !settings.load_weights.empty();
}
bool resumes_latest(const Settings& settings) {
  return settings.resume_checkpoint == "latest";
}

bool shares_load(const Settings& settings) {
  return uses_nvme(settings) && settings.swap_paths.size() > 1 && settings.swap_parity == 0;
}

constexpr std::string_view nvme = "something on NVMe (--offload-optimizer nvme, for one)",
                           some_io = "something on NVMe, or checkpoints (--offload-optimizer nvme, for one)",
                           optimizer_nvme = "optimizer states on NVMe (--offload-optimizer nvme)",
                           parameters_nvme = "parameters on NVMe (--offload-parameters nvme)",
                           gradients_nvme = "gradients on NVMe (--offload-gradients nvme)",
                           checkpoint_folder = "a folder for checkpoints (--checkpoint-dir DIR)",
                           copied_checkpoints =
                               "a folder for checkpoints (--checkpoint-dir DIR), and --checkpoint-mode copy",
                           fp16 = "an fp16 model (--dtype fp16)",
                           dynamic_scale = "an fp16 model without a fixed loss scale (--dtype fp16)",
                           stage_3 = "stage 3 (--stage 3)";
using enum OptimizerChoice;
constexpr std::string_view with_momentum = "SGD with momentum (--optimizer sgd --momentum 0.9)";
constexpr Condition conditions[] = {
    {"beta1", false, "--optimizer adamw, adam or lion", is_one_of<adamw, adam, deepspeed_adam, lion>},
    {"beta2", false, "--optimizer adamw, adam or lion", is_one_of<adamw, adam, deepspeed_adam, lion>},
    {"epsilon", false, "--optimizer adamw, adam or adagrad", is_one_of<adamw, adam, deepspeed_adam, adagrad>},
    {"amsgrad", false, "--optimizer adamw or adam", is_one_of<adamw, adam, deepspeed_adam>, "false"},
    {"momentum", false, "--optimizer sgd", is_one_of<sgd>, "0"},
    {"dampening", false, with_momentum, keeps_momentum, "0"},
    {"nesterov", false, with_momentum, keeps_momentum, "false"},
    {"lr_decay", false, "--optimizer adagrad", is_one_of<adagrad>, "0"},
    {"moments", false, "an optimizer that keeps moments (SGD: with --momentum)", keeps_moments, "\"fp32\""},
    {"durability", false, optimizer_nvme, optimizer_on_nvme},
    {"overwrite_swap", true, optimizer_nvme, optimizer_on_nvme},
    {"swap_parity", false, nvme, uses_nvme, "0"},
    {"swap_path_rates", true, "several swap paths (--swap-path) without parity", shares_load},
    {"swap_buffers", true, optimizer_nvme, optimizer_on_nvme},
    {"swap_cache", true, optimizer_nvme, optimizer_on_nvme},
    {"parameter_buffers", true, parameters_nvme, parameters_on_nvme},
    {"gradient_buffers", true, gradients_nvme, gradients_on_nvme},
    {"io", true, some_io, does_io},
    {"require_io_uring", true, some_io, does_io},
    {"io_depth", true, some_io, does_io},
    {"io_request", true, some_io, does_io},
    {"poll_completions", true, some_io, does_io},
    {"poll_submissions", true, some_io, does_io},
    {"prefetch_units", true, stage_3, shards_parameters},
    {"persistence_numel", true, stage_3, shards_parameters},
    {"retain_adjacent", true, stage_3, shards_parameters},
    {"pin_memory", true, "a tier off the device (--offload-optimizer cpu, for one)", offloads},
    {"link_bandwidth", true, "a tier off the device (--offload-optimizer cpu, for one)", offloads},
    {"loss_scale", false, fp16, scales_loss},
    {"initial_scale_power", false, dynamic_scale, searches_loss_scale},
    {"loss_scale_window", false, dynamic_scale, searches_loss_scale},
    {"loss_scale_hysteresis", false, dynamic_scale, searches_loss_scale},
    {"consecutive_hysteresis", false, dynamic_scale, searches_loss_scale, "false"},
    {"min_loss_scale", false, dynamic_scale, searches_loss_scale},
    {"save_every", false, checkpoint_folder, saves},
    {"keep_last", false, checkpoint_folder, saves},
    {"checkpoint_mode", false, checkpoint_folder, saves, "\"copy\""},
    {"async_save", false, copied_checkpoints, copies, "false"},
    {"save_buffers", true, "--async-save and a folder for checkpoints", saves_beside},
    {"checkpoint_parity", false, copied_checkpoints, copies, "0"},
    {"overwrite_checkpoints", false, checkpoint_folder, saves, "false"},
    {"allow_fresh", false, "--resume latest", resumes_latest, "false"},
    {"token_bits", false, "token ids (--data FILE.bin)", reads_ids},
    {"eval_every", false, "held-out text (--eval-data FILE)", evaluates, "0"},
    {"eval_batches", false, "held-out text (--eval-data FILE)", evaluates},
    {"minimum_rate_ratio", false, "a schedule that decays (--schedule cosine or linear)", decays},
};

}  // namespace

bool replaces_optimizer_of_file(const Settings& settings) {
  const auto optimizer = settings.given.find("optimizer");
  return optimizer != settings.given.end() && is_flag(optimizer->second);
}

namespace {

// What becomes of a setting that changes nothing: refused, or named in the note on performance hints, or in
// the one on the rest of what a file says beside the point: DeepSpeed's section of a type may stand there
// switched off, and the parameters of an optimizer that a flag has replaced.
enum class WithoutEffect : std::uint8_t { refused, hint, beside_the_point };

WithoutEffect kind_of(const Condition& condition, const std::string& given_by, const Settings& settings) {
  if (condition.hint) return WithoutEffect::hint;
  if (given_by.starts_with("fp16.")) return WithoutEffect::beside_the_point;
  return given_by.starts_with("optimizer.params.") && replaces_optimizer_of_file(settings)
             ? WithoutEffect::beside_the_point
             : WithoutEffect::refused;
}

bool asks_for_nothing(const Condition& condition, const Settings& settings) {
  return !condition.inert.empty() &&
         find_native(condition.setting)->get(settings) == Json::parse(condition.inert);
}

// "a, b (need X)", of each X.
std::vector<std::string> without_effect(const Settings& settings, WithoutEffect kind) {
  std::vector<std::string> groups;
  std::vector<std::string_view> listed;  // reasons
  for (const Condition& first : conditions) {
    if (std::find(listed.begin(), listed.end(), first.needs) != listed.end()) continue;
    listed.push_back(first.needs);
    std::vector<std::string> names;
    for (const Condition& condition : conditions)
      if (const auto given = settings.given.find(condition.setting);
          condition.needs == first.needs && given != settings.given.end() &&
          kind_of(condition, given->second, settings) == kind && !condition.met(settings) &&
          !asks_for_nothing(condition, settings))
        names.push_back(given->second);
    if (!names.empty())
      groups.push_back(fmt::format("{} ({} {})", fmt::join(names, ", "), names.size() == 1 ? "needs" : "need",
                                   first.needs));
  }
  return groups;
}

}  // namespace

bool uses_nvme(const Settings& settings) {
  return optimizer_on_nvme(settings) || parameters_on_nvme(settings) || gradients_on_nvme(settings);
}

std::string_view missing_for(const Settings& settings, std::string_view name) {
  const auto* const missing =
      std::find_if(std::begin(conditions), std::end(conditions),
                   [&](const Condition& c) { return c.setting == name && !c.met(settings); });
  return missing == std::end(conditions) ? "" : missing->needs;
}

void refuse_without_effect(const Settings& settings) {
  for (const Condition& condition : conditions)
    if (const auto given = settings.given.find(condition.setting);
        given != settings.given.end() &&
        kind_of(condition, given->second, settings) == WithoutEffect::refused && !condition.met(settings) &&
        !asks_for_nothing(condition, settings))
      throw UsageError(fmt::format("{} would have no effect: it needs {}. Leave it out, or add that.",
                                   given->second, condition.needs));
}

void refuse_contradictions(const Settings& settings) {
  if (settings.optimizer == OptimizerChoice::sgd && settings.nesterov && settings.dampening != 0)
    throw UsageError(
        fmt::format("{} and {} {:g} exclude each other: Nesterov momentum has no dampening. Leave "
                    "one of them out.",
                    user_name(settings, "nesterov"), user_name(settings, "dampening"), settings.dampening));
  const LossScaleOptions& scale = settings.loss_scale;
  if (searches_loss_scale(settings) && scale.minimum > std::ldexp(1.0, scale.initial_power))
    throw UsageError(fmt::format(
        "{} {:g}, the smallest loss scale, is above the first, 2^{} = {:g} ({}). Give a smaller one, or a "
        "higher power.",
        user_name(settings, "min_loss_scale"), scale.minimum, scale.initial_power,
        std::ldexp(1.0, scale.initial_power), user_name(settings, "initial_scale_power")));
}

std::vector<std::string> hints_without_effect(const Settings& settings) {
  return without_effect(settings, WithoutEffect::hint);
}

std::vector<std::string> keys_beside_the_point(const Settings& settings) {
  return without_effect(settings, WithoutEffect::beside_the_point);
}

void drop_replaced_parameters(Settings& settings) {
  if (!replaces_optimizer_of_file(settings)) return;
  for (const Condition& condition : conditions)
    if (const auto given = settings.given.find(condition.setting);
        given != settings.given.end() && given->second.starts_with("optimizer.params.") &&
        !condition.met(settings) && !condition.inert.empty())
      find_native(condition.setting)->set(settings, ConfigValue(given->second, Json::parse(condition.inert)));
}

}  // namespace headrace

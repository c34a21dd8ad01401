#include "src/train/run_identity.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>
#include <vector>

#include "headrace/errors.h"
#include "headrace/train.h"
#include "src/train/optimizer_name.h"
#include "src/train/parameter_groups.h"

namespace headrace {
namespace {

using Json = nlohmann::ordered_json;

std::string schedule(const ScheduleOptions& options) {
  constexpr const char* decays[] = {"constant", "linear", "cosine"};
  constexpr const char* warmups[] = {"linear", "DeepSpeed linear", "DeepSpeed log"};
  std::string text = fmt::format("{} {:.6g}", decays[static_cast<std::size_t>(options.decay)], options.peak);
  if (options.decay != ScheduleOptions::Decay::constant)
    text += fmt::format(" to {:.6g} in {} steps", options.floor, options.total_steps);
  if (options.warmup_steps > 0)
    text +=
        fmt::format(", {} warm-up of {} steps from {:.6g}", warmups[static_cast<std::size_t>(options.warmup)],
                    options.warmup_steps, options.start);
  return text;
}

std::string loss_scale(const LossScaleOptions& options) {
  if (options.fixed != 0) return fmt::format("{:.6g}", options.fixed);
  return fmt::format("dynamic from 2^{} down to {:.6g}, window {}, hysteresis {}{}", options.initial_power,
                     options.minimum, options.window, options.hysteresis,
                     options.consecutive_hysteresis ? " consecutive" : "");
}

// The names are what a user would have to write to make the two equal.
std::vector<std::string> differences(const Json& stored, const Json& current) {
  const auto text = [](const Json& values, const std::string& name) -> std::string {
    if (!values.contains(name)) return "default";
    const Json& value = values.at(name);
    const bool is_word =
        value.is_string() && value.get_ref<const std::string&>().find(' ') == std::string::npos;
    return is_word ? value.get<std::string>() : value.dump();
  };
  Json all = current;
  all.update(stored);
  std::vector<std::string> result;
  for (const auto& [name, value] : all.items())
    if (const std::string before = text(stored, name), now = text(current, name); before != now)
      result.push_back(fmt::format("{} {} (was {})", name, now, before));
  return result;
}

// " in 300 steps" of a schedule's text; empty where it has no end.
std::string length_of(const std::string& schedule) {
  const std::size_t first = schedule.find(" in "), last = schedule.find(" steps", first);
  return last == std::string::npos ? "" : schedule.substr(first, last + 6 - first);
}

std::string without(std::string text, const std::string& part) {
  return part.empty() ? text : text.erase(text.find(part), part.size());
}

// The sentence for a run whose number of steps alone was changed; empty for any other difference.
std::string other_length(Json before, Json now) {
  const auto schedule = now.at("learning rate").get<std::string>(),
             old_schedule = before.at("learning rate").get<std::string>();
  const std::string length = length_of(schedule), old_length = length_of(old_schedule);
  if (length.empty() || old_length.empty() || without(schedule, length) != without(old_schedule, old_length))
    return "";
  before.erase("learning rate"), now.erase("learning rate");
  if (!differences(before, now).empty()) return "";
  return fmt::format("the learning rate now falls{}, as --steps says (before:{}).", length, old_length);
}

// What changes the update of this optimizer. Switches at their usual value are left out.
void add_optimizer(Json& result, const EngineOptions& engine) {
  const OptimizerArguments& a = engine.optimizer;
  const bool is_adam = a.kind == OptimizerKind::adam, is_sgd = a.kind == OptimizerKind::sgd;
  result["--optimizer"] = optimizer_name(a);
  result["--weight-decay"] = a.weight_decay;
  if (is_adam || a.kind == OptimizerKind::lion) result["--beta1"] = a.beta1, result["--beta2"] = a.beta2;
  if (is_adam || a.kind == OptimizerKind::adagrad) result["--epsilon"] = a.epsilon;
  if (a.kind == OptimizerKind::adagrad) result["--lr-decay"] = a.rate_decay;
  if (is_sgd) result["--momentum"] = a.momentum, result["--dampening"] = a.dampening;
  if (is_sgd && a.nesterov) result["--nesterov"] = true;
  if (is_adam && a.amsgrad) result["--amsgrad"] = true;
  if (a.maximize) result["--maximize"] = true;
  if (engine.master_dtype != MasterDType::f32) result["--master-dtype"] = name_of(engine.master_dtype);
  if (engine.moment_dtype != MomentDType::f32) result["--moments"] = name_of(engine.moment_dtype);
}

// Runs of earlier versions said of Adam alone whether it was AdamW.
Json result_of(const Json& run) {
  Json result = run.at("result");
  if (const auto adamw = result.find("AdamW"); adamw != result.end()) {
    result["--optimizer"] = adamw->get<bool>() ? "adamw" : "adam";
    result.erase("AdamW");
  }
  return result;
}

// What the layout of the states does not tell is in it too: the number of heads.
Json model_shape(const ModelConfig& model) {
  Json shape = {{"layers", model.layers},
                {"width", model.width},
                {"heads", model.heads},
                {"vocabulary", model.vocabulary},
                {"positions", model.max_positions},
                {"tied embedding", model.tied_embedding},
                {"MLP width", model.mlp_columns()},
                {"epsilon of norms", model.norm_epsilon}};
  if (model.family == ModelFamily::llama)
    shape.update({{"family", "llama"},
                  {"heads of keys", model.key_head_count()},
                  {"head width", model.head_columns()},
                  {"rope_theta", model.rope_theta}});
  return shape;
}

// Stores of before the shape was kept are taken at their word.
void refuse_other_model(const Json& before, const Json& now, std::string_view resume,
                        const std::string& place) {
  if (!before.contains("model") || !now.contains("model")) return;
  if (const auto shape = differences(before.at("model"), now.at("model")); !shape.empty())
    throw UsageError(fmt::format(
        "{}: the run in {} is of another model: {}. Continue it with its own --model, or start a new "
        "run.",
        resume, place, fmt::join(shape, ", ")));
}

}  // namespace

std::string run_identity(const ResolvedOptions& options, const Tokens& data) {
  Json result = {{"--batch-size", options.batch.micro},
                 {"--accumulation", options.batch.accumulation},
                 {"learning rate", schedule(options.schedule)},
                 {"--clip", options.engine.clip}};
  add_optimizer(result, options.engine);
  if (Json groups = parameter_groups_json(options.named_groups); !groups.is_null())
    result["--parameter-groups"] = std::move(groups);
  if (options.engine.dtype == DType::f16) result["loss scale"] = loss_scale(options.engine.loss_scale);
  return Json{{"samples",
               {{"--seed", options.seed},
                {"--sequence-length", options.model_options.sequence},
                {"data", data.fingerprint()}}},
              {"model", model_shape(options.model)},
              {"result", std::move(result)}}
      .dump();
}

// Tokens::fingerprint says how many bits ids have, where they are no bytes.
bool trained_on_text(const std::string& run) {
  const Json json = Json::parse(run, nullptr, false);
  if (!json.is_object() || !json.contains("samples") || !json.at("samples").is_object()) return false;
  const auto data = json.at("samples").find("data");
  return data != json.at("samples").end() && data->is_string() &&
         data->get<std::string>().find("ids of") == std::string::npos;
}

RunDifference compare_runs(const std::string& stored, const std::string& current, std::string_view resume,
                           const std::string& place) {
  try {
    const Json before = Json::parse(stored), now = Json::parse(current);
    refuse_other_model(before, now, resume, place);
    if (const auto samples = differences(before.at("samples"), now.at("samples")); !samples.empty())
      throw UsageError(fmt::format(
          "{}: the run in {} reads other samples than this one: {}. Continue it with the same seed, sequence "
          "length and data, or start a new run{}.",
          resume, place, fmt::join(samples, ", "),
          resume == "--resume swap" ? " on another --swap-path" : " with its weights (--load-weights)"));
    const Json old_result = result_of(before), new_result = result_of(now);
    const auto result = differences(old_result, new_result);
    if (result.empty()) return {};
    if (std::string text = other_length(old_result, new_result); !text.empty())
      return {std::move(text), true};
    return {fmt::format("the run continues with other settings than before: {}.", fmt::join(result, ", "))};
  } catch (const Json::exception&) {
    throw CorruptData(fmt::format(
        "{} does not say which run it belongs to. It was written by another program or is damaged; `headrace "
        "inspect --verify` tells.",
        place));
  }
}

}  // namespace headrace

// What a tuning leaves: the fragment of a configuration file, and the report.
#include <filesystem>
#include <nlohmann/json.hpp>

#include "headrace/cpu_pool.h"
#include "headrace/memory.h"
#include "headrace/optimizer_blocks.h"
#include "headrace/tune.h"

namespace headrace {
namespace {

using Json = nlohmann::ordered_json;

constexpr double seconds_a_day = 86400;

const char* name_of(Durability durability) {
  return durability == Durability::step ? "step" : "none";
}

Json or_auto(std::uint64_t value) {
  return value == 0 ? Json("auto") : Json(value);
}

Json point_json(const SwapPoint& point, const TuneReport& report) {
  Json json = {{"swap_block", point.block_bytes},
               {"swap_buffers", point.buffers},
               {"io_depth", or_auto(point.queue_depth)},
               {"io_request", or_auto(point.request_bytes)},
               {"io", name_of(point.io)}};
  if (report.placements.size() > 1) json["placement"] = report.placements[point.placement].name;
  return json;
}

Json result_json(const std::string& name, double value, const std::string& unit, int rounds) {
  return {{"case", name},  {"value", value}, {"unit", unit},
          {"ceiling", {}}, {"ratio", {}},    {"rounds", rounds}};
}

// `ratio` is the median over the rounds, not the ratio of two medians.
Json result_json(const std::string& name, double value, const std::string& unit, int rounds, double ceiling,
                 double ratio) {
  Json result = result_json(name, value, unit, rounds);
  result["ceiling"] = ceiling;
  result["ratio"] = ratio;
  return result;
}

Json results_json(const TuneReport& report) {
  Json results = Json::array();
  if (report.ceiling) {
    const TuneCeiling& c = *report.ceiling;
    const auto parameters = static_cast<double>(report.trial_parameters);
    results.push_back(result_json("best: real step against the closed form over its null step",
                                  parameters / c.step_seconds, "parameters/s", c.rounds,
                                  parameters / c.closed_form_seconds, c.share));
    if (c.alone_seconds == 0) return results;  // no plain transfers
    results.push_back(result_json("best: real step against the closed form of plain reads and writes",
                                  parameters / c.step_seconds, "parameters/s", c.rounds,
                                  parameters / c.alone_seconds, c.over_alone()));
    results.push_back(result_json("plain reads", c.read_bytes_per_second * 1e-9, "GB/s", c.rounds));
    results.push_back(result_json("plain writes", c.write_bytes_per_second * 1e-9, "GB/s", c.rounds));
  }
  return results;
}

Json trials_json(const TuneReport& report) {
  Json trials = Json::array();
  for (const TuneTrial& trial : report.trials) {
    Json entry = {{"stage", trial.stage}, {"point", point_json(trial.point, report)}};
    if (trial.failure.empty()) {
      entry["step_seconds"] = trial.step_seconds;
      entry["parameters_per_second"] = trial.parameters_per_second;
      entry["gigabytes_per_second"] = trial.bytes_per_second * 1e-9;
      entry["over_defaults"] = trial.over_defaults > 0 ? Json(trial.over_defaults) : Json();
    } else {
      entry["failure"] = trial.failure;
    }
    trials.push_back(std::move(entry));
  }
  return trials;
}

Json ceiling_json(const TuneCeiling& c) {
  return {{"rounds", c.rounds},
          {"blocks", c.blocks},
          {"step_seconds", c.step_seconds},
          {"null_step_seconds", c.null_step_seconds},
          {"compute_seconds_a_block", c.compute_seconds},
          {"closed_form_seconds", c.closed_form_seconds},
          {"share_of_closed_form", c.share},
          {"deviation", c.deviation},
          {"alone_seconds", c.alone_seconds > 0 ? Json(c.alone_seconds) : Json()},
          {"over_alone", c.alone_seconds > 0 ? Json(c.over_alone()) : Json()}};
}

Json comparison_json(const std::optional<TuneComparison>& comparison, const TuneReport& report) {
  if (!comparison) return {};
  return {{"with", point_json(comparison->with, report)},
          {"ratio", comparison->ratio},
          {"least", comparison->least},
          {"most", comparison->most},
          {"deviation", comparison->deviation},
          {"pairs", comparison->pairs}};
}

std::string absolute(const std::string& path) {
  std::error_code error;
  const auto whole = std::filesystem::canonical(path, error);
  return error ? path : whole.string();
}

// What the run must keep for the point to be the best of it; nothing for a run's defaults.
void add_states(Json& native, const TuneOptions& options) {
  constexpr StateFormat usual;
  const StateFormat& states = options.states;
  if (states.kind != usual.kind) native["optimizer"] = name_of(states.kind);
  if (states.amsgrad) native["amsgrad"] = true;
  if (states.momentum) native["momentum"] = options.momentum;
  if (states.master != usual.master) native["master_dtype"] = name_of(states.master);
  if (states.moments != usual.moments) native["moments"] = name_of(states.moments);
}

}  // namespace

double written_bytes_a_day(const TuneReport& report) {
  return report.step_seconds > 0
             ? static_cast<double>(report.written_bytes_a_step) / report.step_seconds * seconds_a_day
             : 0;
}

bool within_what_was_written(const TuneReport& report) {
  return report.written_bytes_a_step <= report.written_bytes;
}

std::string config_fragment(const TuneReport& report, const TuneOptions& options) {
  if (!report.best) return {};
  const SwapPoint& best = *report.best;
  const SwapPlacement& placement = report.placements[best.placement];
  Json offload = {{"device", "nvme"}};
  const Bytes block_bytes =
      state_bytes(options.states, block_numel(best.block_bytes, options.states));  // as it is used
  Json native = {
      {"swap_block", block_bytes}, {"io", name_of(best.io)}, {"durability", name_of(options.durability)}};
  if (placement.paths.size() == 1) {
    offload["nvme_path"] = absolute(options.swap_paths[placement.paths.front()]);
  } else {
    for (const std::uint32_t path : placement.paths)
      native["swap_path"].push_back(absolute(options.swap_paths[path]));
    for (const double rate : placement.rates) native["swap_path_rates"].push_back(static_cast<Bytes>(rate));
    if (options.parity > 0) native["swap_parity"] = options.parity;
  }
  offload["buffer_count"] = best.buffers;
  if (options.threads > 0) native["threads"] = options.threads;
  add_states(native, options);
  Json fragment = {{"zero_optimization", {{"offload_optimizer", std::move(offload)}}}};
  if (best.request_bytes > 0) fragment["aio"]["block_size"] = best.request_bytes;
  if (best.queue_depth > 0) fragment["aio"]["queue_depth"] = best.queue_depth;
  fragment["headrace"] = std::move(native);
  return fragment.dump(2) + '\n';
}

std::string tune_json(const TuneReport& report, const TuneOptions& options, double endurance_bytes) {
  Json json = {{"benchmark", "tune"},
               {"machine",
                {{"swap_paths", options.swap_paths},
                 {"threads", cpu_threads()},
                 {"available_memory_bytes", available_host_memory()}}},
               {"states", text_of(options.states)},
               {"results", results_json(report)}};
  json["best"] = report.best ? point_json(*report.best, report) : Json();
  json["over_defaults"] = comparison_json(report.over_defaults, report);
  json["without_defaults"] = report.without_defaults.empty() ? Json() : Json(report.without_defaults);
  json["untried"] = report.untried;
  json["drift_of_defaults"] = report.drift > 0 ? Json(report.drift) : Json();
  json["over_runner_up"] = comparison_json(report.over_runner_up, report);
  json["ceiling"] = report.ceiling ? ceiling_json(*report.ceiling) : Json();
  const double a_day = written_bytes_a_day(report);
  json["predicted"] = {
      {"parameters", report.parameters},
      {"step_seconds", report.step_seconds},
      {"scope", predicted_scope},
      {"written_bytes_a_step", report.written_bytes_a_step},
      {"written_bytes_a_day", a_day},
      {"within_what_was_written", within_what_was_written(report)},
      {"endurance_days", endurance_bytes > 0 && a_day > 0 ? Json(endurance_bytes / a_day) : Json()}};
  json["memory_bytes"] = report.memory_bytes;
  json["written_bytes"] = report.written_bytes > 0 ? Json(report.written_bytes) : Json();
  json["peak_rss_bytes"] = report.peak_rss_bytes;
  json["trial_parameters"] = report.trial_parameters;
  json["seconds"] = report.seconds;
  json["stopped"] = report.stopped;
  json["trials"] = trials_json(report);
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + '\n';  // a path may be any bytes
}

}  // namespace headrace

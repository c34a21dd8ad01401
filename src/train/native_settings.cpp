// The table of Headrace's own settings: each is a flag (--learning-rate) and a key of the `headrace` section
// (learning_rate).
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <limits>

#include "headrace/errors.h"
#include "headrace/optimizer_blocks.h"
#include "src/train/settings.h"

namespace headrace {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr std::uint64_t int_max = std::numeric_limits<std::int32_t>::max();

// Setters and getters made from a member of Settings.
template <auto member, std::uint64_t minimum = 0, std::uint64_t maximum = ~std::uint64_t{0}>
void set_count(Settings& settings, const ConfigValue& value) {
  settings.*member = value.count(minimum, maximum);
}
template <auto member>
void set_bytes(Settings& settings, const ConfigValue& value) {
  settings.*member = value.bytes();
}
template <auto member>
void set_limit(Settings& settings, const ConfigValue& value) {
  settings.*member = value.bytes();
  if (settings.*member == 0)
    throw UsageError(
        fmt::format("{}: a limit of 0 bytes leaves no memory. Leave it out for no limit.", value.key()));
}
template <auto member>
void set_number(Settings& settings, const ConfigValue& value) {
  settings.*member = value.number(0, infinity);
}
template <auto member>
void set_boolean(Settings& settings, const ConfigValue& value) {
  settings.*member = value.boolean();
}
template <auto member>
void set_text(Settings& settings, const ConfigValue& value) {
  settings.*member = value.text();
}
template <auto member>
void set_tier(Settings& settings, const ConfigValue& value) {
  settings.*member = static_cast<Tier>(value.choice({"none", "cpu", "nvme"}));
}
template <auto member>
Json get(const Settings& settings) {
  return settings.*member;
}
template <auto member>
Json get_optional_text(const Settings& settings) {
  return (settings.*member).empty() ? Json() : Json(settings.*member);
}
template <auto member>
Json get_size(const Settings& settings) {
  return settings.*member == 0 ? Json() : Json(settings.*member);
}
template <auto member>
Json get_optional(const Settings& settings) {
  return settings.*member ? Json(*(settings.*member)) : Json();
}
template <auto member>
Json get_tier(const Settings& settings) {
  constexpr const char* names[] = {"none", "cpu", "nvme"};
  return names[static_cast<std::size_t>(settings.*member)];
}
template <auto member>
void set_batch(Settings& settings, const ConfigValue& value) {
  settings.batch.*member = value.count(1, int_max);
}
template <auto member>
Json get_batch(const Settings& settings) {
  return settings.batch.*member == 0 ? Json() : Json(settings.batch.*member);
}
template <auto member, std::uint64_t maximum>
void set_probability(Settings& settings, const ConfigValue& value) {
  settings.*member = value.number(0, maximum);
  if (settings.*member >= 1) value.refuse("a number from 0 to less than 1");
}

void set_dtype(Settings& settings, const ConfigValue& value) {
  const std::size_t choice = value.choice({"fp32", "bf16", "fp16"});
  if (choice == 2)
    throw UsageError(fmt::format(
        "{}: fp16 is not available in this version. Use bf16 (same memory, no loss scaling) or fp32.",
        value.key()));
  settings.dtype = choice == 0 ? DType::f32 : DType::bf16;
}
Json get_dtype(const Settings& settings) {
  return name_of(settings.dtype);
}

void set_learning_rate(Settings& settings, const ConfigValue& value) {
  settings.learning_rate = learning_rate_value(value);
  settings.scheduler.maximum_rate.reset();  // which would go before it
}
void set_decay(Settings& settings, const ConfigValue& value) {
  settings.decay = static_cast<ScheduleOptions::Decay>(value.choice({"constant", "linear", "cosine"}));
  settings.scheduler = {};
}
Json get_decay(const Settings& settings) {
  constexpr const char* names[] = {"constant", "linear", "cosine"};
  return names[static_cast<std::size_t>(settings.decay)];
}
void set_warmup(Settings& settings, const ConfigValue& value) {
  settings.warmup_steps = value.count(0, largest_count);
  if (settings.scheduler.type != DeepSpeedScheduler::Type::none)
    settings.scheduler.warmup_steps = settings.warmup_steps;
}

void set_durability(Settings& settings, const ConfigValue& value) {
  settings.durability = value.choice({"step", "none"}) == 0 ? Durability::step : Durability::none;
}
Json get_durability(const Settings& settings) {
  return settings.durability == Durability::step ? "step" : "none";
}
Bytes buffer_bytes(const ConfigValue& value, Bytes minimum) {
  constexpr Bytes maximum = Bytes{64} << 30;
  const Bytes bytes = value.bytes();
  if (bytes < minimum || bytes > maximum)
    value.refuse(fmt::format("a size from {} to {}", minimum < 1024 ? "1 byte" : format_bytes(minimum),
                             format_bytes(maximum)));
  return bytes;
}
void set_swap_block(Settings& settings, const ConfigValue& value) {
  constexpr Bytes smallest = state_bytes_per_element * norm_chunk_numel;
  settings.swap_block_bytes = buffer_bytes(value, smallest);
  settings.swap_block_numel.reset();
}
void set_bucket(Settings& settings, const ConfigValue& value) {
  settings.bucket_bytes = buffer_bytes(value, 1);
  settings.bucket_numel.reset();
}
void set_prefetch(Settings& settings, const ConfigValue& value) {
  settings.prefetch_units = value.count(0, 1024);
  settings.prefetch_numel.reset();
}

void set_device(Settings& settings, const ConfigValue& value) {
  settings.device = value.choice({"cpu", "cuda"}) == 0 ? DeviceKind::cpu : DeviceKind::cuda;
}
Json get_device(const Settings& settings) {
  return settings.device == DeviceKind::cpu ? "cpu" : "cuda";
}
void set_io(Settings& settings, const ConfigValue& value) {
  settings.io = static_cast<IoKind>(value.choice({"auto", "io_uring", "threads"}));
}
Json get_io(const Settings& settings) {
  constexpr const char* names[] = {"auto", "io_uring", "threads"};
  return names[static_cast<std::size_t>(settings.io)];
}
void set_io_request(Settings& settings, const ConfigValue& value) {
  settings.io_request_bytes = buffer_bytes(value, 1);  // below a block of the file, it is one
}
// A list, or one value alone.
std::vector<ConfigValue> values_of(const ConfigValue& value) {
  std::vector<ConfigValue> values;
  if (!value.json().is_array()) return {value};
  for (const Json& element : value.json()) values.emplace_back(value.key(), element);
  if (values.empty()) value.refuse("at least one value");
  return values;
}
void set_swap_paths(Settings& settings, const ConfigValue& value) {
  settings.swap_paths.clear();
  for (const ConfigValue& path : values_of(value)) settings.swap_paths.push_back(path.text());
}
Json get_swap_paths(const Settings& settings) {
  if (settings.swap_paths.empty()) return {};
  return settings.swap_paths.size() == 1 ? Json(settings.swap_paths.front()) : Json(settings.swap_paths);
}

// "8GB/s", or bytes per second.
Bytes rate_of(const ConfigValue& value) {
  std::string text = value.json().is_string() ? value.text() : value.json().dump();
  if (text.ends_with("/s")) text.resize(text.size() - 2);
  try {
    return parse_bytes(text, value.key());
  } catch (const UsageError&) {
    value.refuse("a rate like 8GB/s or 1.5GiB/s, or a number of bytes per second");
  }
}
// "3GB/s,1GB/s" as two values.
std::vector<ConfigValue> split_at_commas(const ConfigValue& value) {
  if (!value.json().is_string()) return {value};
  std::vector<ConfigValue> parts;
  const std::string text = value.text();
  for (std::size_t first = 0, comma = 0; comma != std::string::npos; first = comma + 1) {
    comma = text.find(',', first);
    const std::string part = text.substr(first, comma - first);
    if (part.empty()) value.refuse("rates with a comma between two of them");
    parts.emplace_back(value.key(), part);
  }
  return parts;
}
void set_swap_path_rates(Settings& settings, const ConfigValue& value) {
  settings.swap_path_rates.clear();
  for (const ConfigValue& given : values_of(value))
    for (const ConfigValue& rate : split_at_commas(given)) {
      const Bytes bytes = rate_of(rate);
      if (bytes == 0) rate.refuse("a rate above 0");
      settings.swap_path_rates.push_back(static_cast<double>(bytes));
    }
}
Json get_swap_path_rates(const Settings& settings) {
  if (settings.swap_path_rates.empty()) return {};
  Json rates = Json::array();
  for (const double rate : settings.swap_path_rates) rates.push_back(static_cast<Bytes>(rate));
  return rates;
}
void set_bandwidth(Settings& settings, const ConfigValue& value) {
  settings.link_bytes_per_second = rate_of(value);
  constexpr Bytes slowest = 1'000'000;  // far below any link; a step would take hours
  if (settings.link_bytes_per_second < slowest)
    throw UsageError(fmt::format(
        "{}: \"{}\" is less than the slowest link there is a use for, 1MB/s. Write a rate like 8GB/s.",
        value.key(), value.json().is_string() ? value.text() : value.json().dump()));
}

void set_timeout(Settings& settings, const ConfigValue& value) {
  constexpr double year = 365.0 * 86400;
  settings.timeout_seconds = value.number(1, year);
}

void set_resume(Settings& settings, const ConfigValue& value) {
  if (value.text() != "swap")
    throw UsageError(
        fmt::format("{}: \"{}\" is not available in this version, which has no checkpoints yet. \"swap\" "
                    "continues from the last step committed in the swap path.",
                    value.key(), value.text()));
  settings.resume_swap = true;
}
Json get_resume(const Settings& settings) {
  return settings.resume_swap ? Json("swap") : Json();
}

using S = Settings;
constexpr const char* model_group = "Model and data";
constexpr const char* batch_group = "Batch and length of the run";
constexpr const char* optimizer_group = "Optimizer";
constexpr const char* memory_group = "Memory: what lives where";
constexpr const char* tuning_group = "Tuning: same results, other speed and memory";
constexpr const char* run_group = "Run";

std::vector<NativeSetting> make_model_settings() {
  return {
      {{"model", model_group, "NAME", fmt::format("{} (required)", fmt::join(model_preset_names(), ", "))},
       set_text<&S::model>,
       get_optional_text<&S::model>},
      {{"data", model_group, "PATH",
        "text to train on, as bytes: a file, or all files below a folder (required)", true},
       set_text<&S::data_path>,
       get_optional_text<&S::data_path>},
      {{"eval_data", model_group, "PATH", "held-out text; its loss is reported (default none)", true},
       set_text<&S::eval_path>,
       get_optional_text<&S::eval_path>},
      {{"eval_every", model_group, "N", "held-out loss every N steps (default 0: at the end only)", true},
       set_count<&S::eval_every, 0, largest_count>,
       get<&S::eval_every>},
      {{"eval_batches", model_group, "N", "micro-batches a rank evaluates, always the same ones (default 8)",
        true},
       set_count<&S::eval_batches, 1, int_max>,
       get<&S::eval_batches>},
      {{"sequence_length", model_group, "N",
        "tokens of a sequence (default 256, or fewer where the model has fewer)"},
       set_count<&S::sequence_length, 1, int_max>,
       get_optional<&S::sequence_length>},
      {{"dtype", model_group, "TYPE", "bf16 or fp32: parameters, gradients, arithmetic (default bf16)"},
       set_dtype,
       get_dtype},
      {{"recompute", model_group, "",
        "keep only block inputs, run forward again in backward: less memory, more time"},
       set_boolean<&S::recompute>,
       get<&S::recompute>},
  };
}

std::vector<NativeSetting> make_batch_settings() {
  return {
      {{"steps", batch_group, "N", "optimizer steps of the whole run, resumed ones included (default 100)",
        true},
       set_count<&S::steps, 1, largest_count>,
       get<&S::steps>},
      {{"batch_size", batch_group, "N", "sequences of one rank's micro-batch (default 8)"},
       set_batch<&BatchSizes::micro>,
       get_batch<&BatchSizes::micro>},
      {{"accumulation", batch_group, "N", "micro-batches of a step (default 1)"},
       set_batch<&BatchSizes::accumulation>,
       get_batch<&BatchSizes::accumulation>},
      {{"global_batch_size", batch_group, "N",
        "sequences of a step over all ranks (default: from the two above)"},
       set_batch<&BatchSizes::global>,
       get_batch<&BatchSizes::global>},
      {{"seed", batch_group, "N", "of initial weights and data order (default 0)", true},
       set_count<&S::seed>,
       get<&S::seed>},
  };
}

std::vector<NativeSetting> make_optimizer_settings() {
  return {
      {{"learning_rate", optimizer_group, "X", "peak of the schedule (default 3e-4)", true},
       set_learning_rate,
       get<&S::learning_rate>},
      {{"warmup_steps", optimizer_group, "N", "steps of linear warm-up (default 0)", true},
       set_warmup,
       get_optional<&S::warmup_steps>},
      {{"schedule", optimizer_group, "NAME", "after warm-up: cosine, linear or constant (default cosine)",
        true},
       set_decay,
       get_decay},
      {{"minimum_rate_ratio", optimizer_group, "X", "last learning rate as a part of the peak (default 0.1)",
        true},
       set_probability<&S::minimum_rate_ratio, 1>,
       get<&S::minimum_rate_ratio>},
      {{"clip", optimizer_group, "X", "largest global gradient norm; 0: no clipping (default 1)", true},
       set_number<&S::clip>,
       get<&S::clip>},
      {{"beta1", optimizer_group, "X", "decay of the first moment (default 0.9)", true},
       set_probability<&S::beta1, 1>,
       get<&S::beta1>},
      {{"beta2", optimizer_group, "X", "decay of the second moment (default 0.95)", true},
       set_probability<&S::beta2, 1>,
       get<&S::beta2>},
      {{"epsilon", optimizer_group, "X", "added to the root of the second moment (default 1e-8)", true},
       set_number<&S::epsilon>,
       get<&S::epsilon>},
      {{"weight_decay", optimizer_group, "X", "of matrices; norms and biases have none (default 0.1)", true},
       set_number<&S::weight_decay>,
       get<&S::weight_decay>},
      {{"decoupled", optimizer_group, "BOOL", "true: AdamW, false: Adam (default true)", true},
       set_boolean<&S::decoupled>,
       get<&S::decoupled>},
  };
}

std::vector<NativeSetting> make_memory_settings() {
  return {
      {{"stage", memory_group, "0|1|2|3",
        "ZeRO stage: shards nothing, optimizer, +gradients, +parameters (default 0)"},
       set_count<&S::stage, 0, 3>,
       get<&S::stage>},
      {{"offload_optimizer", memory_group, "TIER", "none, cpu or nvme: optimizer states (default none)"},
       set_tier<&S::optimizer_tier>,
       get_tier<&S::optimizer_tier>},
      {{"offload_gradients", memory_group, "TIER",
        "none, cpu or nvme: gradients, stages 2 and 3 (default none)"},
       set_tier<&S::gradient_tier>,
       get_tier<&S::gradient_tier>},
      {{"offload_parameters", memory_group, "TIER", "none, cpu or nvme: parameters, stage 3 (default none)"},
       set_tier<&S::parameter_tier>,
       get_tier<&S::parameter_tier>},
      {{"device", memory_group, "cpu|cuda", "what computes (default cpu)"}, set_device, get_device},
      {{"device_memory", memory_group, "SIZE",
        "hard limit a rank, like 512MiB (default: what the plan needs; on CUDA what is free)"},
       set_limit<&S::device_memory_bytes>,
       get_size<&S::device_memory_bytes>},
      {{"host_memory", memory_group, "SIZE", "hard limit a rank (default: what the machine has available)"},
       set_limit<&S::host_memory_bytes>,
       get_size<&S::host_memory_bytes>},
      {{"swap_path", memory_group, "DIR",
        "existing folder on an NVMe drive, for what is kept there; several share the load", false, true},
       set_swap_paths,
       get_swap_paths},
      {{"swap_parity", memory_group, "N",
        "swap paths that may be lost without losing the run; takes as much more disk (default 0)"},
       set_count<&S::swap_parity, 0, 16>,
       get<&S::swap_parity>},
      {{"durability", memory_group, "step|none",
        "step: resumable after any crash; none: half the disk (default step)"},
       set_durability,
       get_durability},
  };
}

std::vector<NativeSetting> make_tuning_settings() {
  return {
      {{"swap_block", tuning_group, "SIZE",
        "one read or write of optimizer states; fixed for the life of a store (default 3MiB)"},
       set_swap_block,
       get<&S::swap_block_bytes>},
      {{"swap_path_rates", tuning_group, "RATE",
        "of each swap path, like 3GB/s,1GB/s: its share of the blocks (default: measured)", false, true},
       set_swap_path_rates,
       get_swap_path_rates},
      {{"swap_buffers", tuning_group, "N",
        "blocks in flight between NVMe and the update, at least 3 (default 8)"},
       set_count<&S::swap_buffers, 3, 4096>,
       get<&S::swap_buffers>},
      {{"swap_cache", tuning_group, "SIZE",
        "host memory for blocks kept beside NVMe (default: what --host-memory leaves)"},
       set_bytes<&S::swap_cache_bytes>,
       get_optional<&S::swap_cache_bytes>},
      {{"parameter_buffers", tuning_group, "N",
        "blocks of parameters read from NVMe ahead of their use (default 16)"},
       set_count<&S::parameter_buffers, 1, 65536>,
       get<&S::parameter_buffers>},
      {{"gradient_buffers", tuning_group, "N",
        "blocks of gradients on their way to or from NVMe (default 8)"},
       set_count<&S::gradient_buffers, 1, 65536>,
       get<&S::gradient_buffers>},
      {{"bucket", tuning_group, "SIZE", "buffer of one reduction step (default 4MiB)"},
       set_bucket,
       get<&S::bucket_bytes>},
      {{"prefetch_units", tuning_group, "N", "units gathered ahead at stage 3 (default 1)"},
       set_prefetch,
       get<&S::prefetch_units>},
      {{"persistence_numel", tuning_group, "N",
        "units of at most N elements stay gathered at stage 3 (default 0)"},
       set_count<&S::persistence_numel>,
       get<&S::persistence_numel>},
      {{"retain_adjacent", tuning_group, "BOOL",
        "keep a unit whose next use is the next acquire (default true)"},
       set_boolean<&S::retain_adjacent>,
       get<&S::retain_adjacent>},
      {{"fused_head", tuning_group, "BOOL", "gather the head once for forward and backward (default true)"},
       set_boolean<&S::fused_head>,
       get<&S::fused_head>},
      {{"pin_memory", tuning_group, "BOOL",
        "lock host memory that is copied to and from the device (default true)"},
       set_boolean<&S::pin_memory>,
       get<&S::pin_memory>},
      {{"threads", tuning_group, "N", "CPU threads a rank computes with (default 0: its share of the cores)",
        true},
       set_count<&S::threads, 0, 4096>,
       get<&S::threads>},
      {{"io", tuning_group, "ENGINE", "auto, io_uring or threads (default auto)", true}, set_io, get_io},
      {{"require_io_uring", tuning_group, "",
        "where io_uring is refused, fail instead of doing its work on threads", true},
       set_boolean<&S::require_io_uring>,
       get<&S::require_io_uring>},
      {{"io_depth", tuning_group, "N", "requests in flight on a drive (default: the engine's choice)", true},
       set_count<&S::io_depth, 1, 4096>,
       get_optional<&S::io_depth>},
      {{"io_request", tuning_group, "SIZE", "one request to a drive (default: the engine's choice)", true},
       set_io_request,
       get_optional<&S::io_request_bytes>},
      {{"poll_completions", tuning_group, "",
        "poll the drive for completions (IOPOLL): lower latency, more CPU time; needs poll queues", true},
       set_boolean<&S::poll_completions>,
       get<&S::poll_completions>},
      {{"poll_submissions", tuning_group, "",
        "a thread of the kernel takes submissions (SQPOLL): no system calls, for a core", true},
       set_boolean<&S::poll_submissions>,
       get<&S::poll_submissions>},
      {{"link_bandwidth", tuning_group, "RATE",
        "paces CPU-device copies like a PCIe link: 8GB/s (default none)", true},
       set_bandwidth,
       get_size<&S::link_bytes_per_second>},
  };
}

std::vector<NativeSetting> make_run_settings() {
  return {
      {{"resume", run_group, "swap", "continue from the last step committed in the swap path", true},
       set_resume,
       get_resume},
      {{"overwrite_swap", run_group, "",
        "start anew where the swap path holds a step of an earlier run, and delete that", true},
       set_boolean<&S::overwrite_swap>,
       get<&S::overwrite_swap>},
      {{"metrics", run_group, "FILE", "writes one JSON object a step and a summary (default none)", true},
       set_text<&S::metrics_path>,
       get_optional_text<&S::metrics_path>},
      {{"log_every", run_group, "N",
        "a progress line every N steps, at most one a second; not on a terminal (default 1)", true},
       set_count<&S::log_every, 1, largest_count>,
       get<&S::log_every>},
      {{"timeout", run_group, "SECONDS", "a rank that waits longer for another ends the job (default 600)",
        true},
       set_timeout,
       get<&S::timeout_seconds>},
      {{"quiet", run_group, "", "no progress on stderr, warnings and errors only", true},
       set_boolean<&S::quiet>,
       get<&S::quiet>},
  };
}

}  // namespace

const std::vector<NativeSetting>& native_settings() {
  static const std::vector<NativeSetting> all = [] {
    std::vector<NativeSetting> table;
    for (const auto& make : {make_model_settings, make_batch_settings, make_optimizer_settings,
                             make_memory_settings, make_tuning_settings, make_run_settings})
      for (NativeSetting& setting : make()) table.push_back(std::move(setting));
    return table;
  }();
  return all;
}

const NativeSetting* find_native(std::string_view name) {
  for (const NativeSetting& setting : native_settings())
    if (setting.info.name == name) return &setting;
  return nullptr;
}

const std::vector<SettingInfo>& setting_infos() {
  static const std::vector<SettingInfo> infos = [] {
    std::vector<SettingInfo> result;
    for (const NativeSetting& setting : native_settings()) result.push_back(setting.info);
    return result;
  }();
  return infos;
}

}  // namespace headrace

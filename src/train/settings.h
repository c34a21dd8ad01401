// The draft of a run's options: one plain struct that the tables of native and DeepSpeed keys write into.
// Counts that are given in elements (DeepSpeed's buckets) stay so until the element type is known.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "headrace/config.h"
#include "src/train/config_value.h"

namespace headrace {

// DeepSpeed's `scheduler` section as given; resolve.cpp turns it into ScheduleOptions.
struct DeepSpeedScheduler {
  enum class Type : std::uint8_t { none, warmup, warmup_decay, warmup_cosine };
  Type type = Type::none;
  bool logarithmic = true;
  std::optional<double> minimum_rate, maximum_rate, minimum_ratio, cosine_minimum_ratio;
  std::optional<std::uint64_t> warmup_steps, total_steps;
};

// deepspeed_adam: AdamW, unless adam_w_mode says otherwise.
enum class OptimizerChoice : std::uint8_t { adamw, adam, adagrad, lion, sgd, deepspeed_adam };
// Whose defaults fill what is left out: DeepSpeed's where its `optimizer.type` chose the optimizer.
enum class DefaultsOf : std::uint8_t { headrace, deepspeed };

struct Settings {
  // Settings that the user gave, and the key or flag by which: "--swap-block", "headrace.swap_block".
  std::map<std::string, std::string, std::less<>> given;

  std::string model, data_path, eval_path;
  unsigned token_bits = 0;
  std::optional<std::uint64_t> sequence_length;
  DType dtype = DType::bf16;
  std::optional<bool> bf16_enabled, fp16_enabled;  // of one file's sections; then `dtype` says it
  LossScaleOptions loss_scale;
  bool recompute = false, fused_head = true, pin_memory = true;

  BatchSizes batch;
  std::uint64_t steps = 100, seed = 0, eval_every = 0, eval_batches = 8;

  double minimum_rate_ratio = 0.1;
  std::optional<std::uint64_t> warmup_steps;
  ScheduleOptions::Decay decay = ScheduleOptions::Decay::cosine;
  DeepSpeedScheduler scheduler;
  OptimizerChoice optimizer = OptimizerChoice::adamw;
  DefaultsOf optimizer_defaults = DefaultsOf::headrace;
  std::optional<bool> adam_w_mode;                                           // DeepSpeed's
  bool torch_adam = false;                                                   // the same
  std::optional<double> learning_rate, beta1, beta2, epsilon, weight_decay;  // none: the optimizer's default
  double momentum = 0, dampening = 0, rate_decay = 0;
  bool amsgrad = false, nesterov = false, maximize = false;
  std::vector<NamedGroup> parameter_groups;
  MasterDType master_dtype = MasterDType::f32;
  MomentDType moment_dtype = MomentDType::f32;
  double clip = 1.0;

  std::uint64_t stage = 0;
  Tier optimizer_tier = Tier::device, parameter_tier = Tier::device, gradient_tier = Tier::device;
  std::vector<std::string> swap_paths;
  std::uint64_t swap_parity = 0;
  std::vector<double> swap_path_rates;  // bytes per second
  std::string parameter_swap_path;      // DeepSpeed's offload_param.nvme_path
  Durability durability = Durability::step;
  Bytes swap_block_bytes = 3 << 20, bucket_bytes = 4 << 20;
  std::optional<std::uint64_t> swap_block_numel, bucket_numel, prefetch_numel;
  std::uint64_t parameter_buffers = 16, gradient_buffers = 8;
  std::uint64_t swap_buffers = 8, prefetch_units = 1, persistence_numel = 0;
  std::optional<Bytes> swap_cache_bytes;
  bool retain_adjacent = true;

  DeviceKind device = DeviceKind::cpu;
  Bytes device_memory_bytes = 0, host_memory_bytes = 0;
  std::uint64_t threads = 0;
  Bytes link_bytes_per_second = 0;
  IoKind io = IoKind::automatic;
  bool require_io_uring = false, poll_completions = false, poll_submissions = false;
  std::optional<std::uint64_t> io_depth;
  std::optional<Bytes> io_request_bytes;

  std::string checkpoint_directory, resume_checkpoint,
      load_weights;  // resume_checkpoint: "latest", or its path
  std::uint64_t save_every = 0, keep_last = 0, checkpoint_parity = 0, save_buffers = 8;
  bool pin_checkpoints = false;
  bool allow_fresh = false, async_save = false, overwrite_checkpoints = false;
  bool resume_swap = false, overwrite_swap = false;
  std::string metrics_path;
  std::uint64_t log_every = 1;
  double timeout_seconds = 600;
  bool quiet = false;
};

// A key of the `headrace` section, which is also a flag.
struct NativeSetting {
  SettingInfo info;
  void (*set)(Settings&, const ConfigValue&);
  Json (*get)(const Settings&);
};
const std::vector<NativeSetting>& native_settings();
const NativeSetting* find_native(std::string_view name);

// A key of DeepSpeed's. `native` is the setting that it gives a value to; `set` is used where the value needs
// more than that setting's own reading. A key that is not available, or a hint, is accepted at the value
// `inert` (JSON) that asks for nothing.
struct DeepSpeedKey {
  std::string path;
  KeyClass key_class;
  std::string native, inert, meaning;
  void (*set)(Settings&, const ConfigValue&) = nullptr;
};
const std::vector<DeepSpeedKey>& deepspeed_table();

// Keys of a file that were accepted and change nothing.
struct UnusedKeys {
  std::vector<std::string> hints;         // performance hints without meaning here
  std::vector<std::string> defaults;      // "auto"
  std::vector<std::string> switched_off;  // of a section that is
};
UnusedKeys apply_config(const Json& file, const std::string& origin, Settings& settings);

// What the user calls a setting: the key of the file that gave it, in quotes, or else its flag.
std::string user_name(const Settings& settings, std::string_view name);

// Whether any kind of state is placed on NVMe.
bool uses_nvme(const Settings& settings);

// What a setting needs to change anything beside the others; "" where it does.
std::string_view missing_for(const Settings& settings, std::string_view name);
// A given setting that would change results or placement but cannot is a UsageError.
void refuse_without_effect(const Settings& settings);
// Settings that each have a meaning, and together none, are a UsageError too.
void refuse_contradictions(const Settings& settings);
// A given performance hint without effect is listed: "--swap-buffers, --io (nothing is on NVMe)" ...
std::vector<std::string> hints_without_effect(const Settings& settings);
// ... and what a file says of a type or an optimizer that the run does not have.
std::vector<std::string> keys_beside_the_point(const Settings& settings);
// Whether a flag gives the optimizer, before any that the file may name ...
bool replaces_optimizer_of_file(const Settings& settings);
// ... in which case the file's switches that only its own had are off.
void drop_replaced_parameters(Settings& settings);

// Makes one of the first five of the choice, and gives what is not given the optimizer's defaults.
void resolve_optimizer(Settings& settings);
OptimizerArguments optimizer_arguments(const Settings& settings);
StateFormat state_format(const Settings& settings);

// A rank's own folder of a swap path.
std::string rank_directory(const std::string& swap_path, int rank);
std::vector<std::string> rank_directories(const std::vector<std::string>& swap_paths, int rank);

// `units`: of a model that is the caller's; null: the settings name a native one.
ResolvedOptions resolve_settings(Settings settings, const LaunchInfo& launch,
                                 const std::vector<UnitSpec>* units = nullptr);

}  // namespace headrace

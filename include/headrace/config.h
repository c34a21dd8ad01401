// The options of a run: DeepSpeed's configuration keys and Headrace's own, from a file and from flags,
// checked once into an immutable ResolvedOptions. Every error is a UsageError that names the key and the
// value.
//
//   ConfigDraft draft;
//   draft.read_file("run.json");             // optional; flags set later override it
//   draft.set_flag("learning_rate", "1e-3");  // --learning-rate 1e-3
//   ResolvedOptions options = draft.resolve(launch_info());
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/checkpoint_settings.h"
#include "headrace/communicator.h"
#include "headrace/engine.h"
#include "headrace/model.h"

namespace headrace {

// train = micro x accumulation x world: sequences of one optimizer step, of one rank's micro-batch, ...
struct BatchSizes {
  std::uint64_t global = 0, micro = 0, accumulation = 0, world = 1;
};

// The learning rate as a function of a count of steps alone, the same on every rank: of all steps, those that
// are skipped too; of DeepSpeed's schedulers, of the updates that were applied.
struct ScheduleOptions {
  enum class Decay : std::uint8_t { constant, linear, cosine };
  // linear reaches the peak at the last warm-up step. The DeepSpeed shapes start at `start` exactly, and, as
  // its engine moves its schedulers on behind the update, everything is one step later.
  enum class Warmup : std::uint8_t { linear, deepspeed_linear, deepspeed_log };
  Decay decay = Decay::cosine;
  Warmup warmup = Warmup::linear;
  double peak = 3e-4, start = 0.0, floor = 3e-5;
  std::uint64_t warmup_steps = 0, total_steps = 100;

  bool of_deepspeed() const { return warmup != Warmup::linear; }
};

enum class DeviceKind : std::uint8_t { cpu, cuda };
enum class IoKind : std::uint8_t { automatic, io_uring, threads };
std::string_view name_of(IoKind kind);  // "auto", "io_uring", "threads"

// A parameter group by patterns of names, as a shell has them for files: those of EngineOptions::groups from
// 1 on.
struct NamedGroup {
  std::vector<std::string> patterns;
  ParameterGroup values;
};

struct ResolvedOptions {
  ModelConfig model;
  std::string model_folder;  // model_folder.h; empty: a preset
  ModelOptions model_options;
  EngineOptions engine;  // swap_directories are this rank's
  std::vector<NamedGroup> named_groups;
  std::string parameter_groups_name = "--parameter-groups";  // or the key of the file that gave them
  BatchSizes batch;
  ScheduleOptions schedule;

  std::uint64_t steps = 0, seed = 0;
  std::string data_path, eval_path;
  unsigned token_bits = 0;  // of ids in files without a header; 0: by the vocabulary
  std::uint64_t eval_every = 0, eval_batches = 0;

  DeviceKind device = DeviceKind::cpu;
  Bytes device_memory_bytes = 0, host_memory_bytes = 0;  // 0: no limit given
  int threads = 0;
  double link_bytes_per_second = 0;
  IoKind io = IoKind::automatic;
  std::optional<std::uint32_t> io_depth;  // none: the I/O engine's own choice
  std::optional<Bytes> io_request_bytes;
  bool poll_completions = false, poll_submissions = false;  // of io_uring
  std::vector<std::string> swap_paths;
  std::string swap_path_name = "--swap-path";  // or the key of the file that gave them
  std::optional<Bytes> swap_cache_bytes;       // none: what a host limit leaves
  bool resume_swap = false, overwrite_swap = false;
  CheckpointSettings checkpoint;
  std::string metrics_path;
  std::uint64_t log_every = 0;
  double timeout_seconds = 600;
  bool quiet = false;
  LaunchInfo launch;

  std::string effective_config;    // JSON, itself a valid configuration file
  std::vector<std::string> notes;  // what the user should know of keys that were accepted without effect
};

// One option as a flag (--like-this) and as a key of the `headrace` section (like_this).
struct SettingInfo {
  std::string name, group, argument;  // argument: "" for a switch
  std::string meaning;                // one line with unit and default
  bool training_only = false;         // has no meaning for `plan`
  bool repeated = false;              // the flag may be given several times, the key may be a list
};
const std::vector<SettingInfo>& setting_infos();

// Text of every key of DeepSpeed's that is known, by class: for documentation and tests.
enum class KeyClass : std::uint8_t { works, not_available, hint };
struct KnownKey {
  std::string path;
  KeyClass key_class = KeyClass::works;
  std::string meaning;
};
std::vector<KnownKey> deepspeed_keys();

class ConfigDraft {
 public:
  ConfigDraft();
  ~ConfigDraft();
  void read_file(const std::string& path);
  void read_text(std::string_view json, const std::string& origin);
  void set_flag(const std::string& name, const std::string& value);
  void set_flag(const std::string& name, const std::vector<std::string>& values);  // of a repeated one
  ResolvedOptions resolve(const LaunchInfo& launch) const;
  // Of a model that the caller has, as units. What describes the native one is then a UsageError.
  ResolvedOptions resolve_for(const std::vector<UnitSpec>& units, const LaunchInfo& launch) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Any two give the third; one alone: accumulation 1 (the micro-batch when only that is given). 0: not given.
BatchSizes resolve_batch(const BatchSizes& given, const std::string& world_size_source);

// Gives each parameter the number of the first group with a pattern that matches its name. A pattern that
// matches none is a UsageError.
void assign_groups(std::vector<UnitSpec>& units, const ResolvedOptions& options);
// A line for each of the groups given: what it holds of these units, and how it is updated.
std::vector<std::string> group_lines(const std::vector<UnitSpec>& units, const ResolvedOptions& options);

// "adamw, betas 0.9 0.95, epsilon 1e-08, weight decay 0.1; fp32 master, fp32 moments"
std::string optimizer_line(const EngineOptions& engine);

// Of the step before which so many were counted.
double learning_rate(const ScheduleOptions& schedule, std::uint64_t counted);

}  // namespace headrace

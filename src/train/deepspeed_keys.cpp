// The table of DeepSpeed's configuration keys: what each does here. A key is in exactly one class: it works;
// or it would change results or placement but is not available (an error that names the nearest way, unless
// its value asks for nothing); or it is a hint about speed that has no meaning here (listed in one note).
#include <fmt/format.h>

#include <limits>

#include "headrace/errors.h"
#include "src/train/setting_values.h"
#include "src/train/settings.h"

namespace headrace {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

void set_bf16(Settings& settings, const ConfigValue& value) {
  settings.bf16_enabled = value.boolean();
}
void set_fp16(Settings& settings, const ConfigValue& value) {
  settings.fp16_enabled = value.boolean();
}
void set_bucket_numel(Settings& settings, const ConfigValue& value) {
  settings.bucket_numel = value.count(1);
}
void set_prefetch_numel(Settings& settings, const ConfigValue& value) {
  settings.prefetch_numel = value.count();
}
void set_sub_group(Settings& settings, const ConfigValue& value) {
  settings.swap_block_numel = value.count(1);
}
void set_parameter_path(Settings& settings, const ConfigValue& value) {
  settings.parameter_swap_path = value.text();
}
void set_recompute(Settings& settings, const ConfigValue& value) {
  settings.recompute = value.count() > 0;
}
// One pool serves every tier, so one refusal is enough.
void set_pinned(Settings& settings, const ConfigValue& value) {
  if (!value.json().is_null() && !value.boolean()) settings.pin_memory = false;
}
void set_optimizer_type(Settings& settings, const ConfigValue& value) {
  using enum OptimizerChoice;
  constexpr OptimizerChoice available[] = {adamw, deepspeed_adam, lion, adagrad, sgd};
  const std::size_t choice = value.choice(
      {"AdamW", "Adam", "Lion", "Adagrad", "SGD", "Lamb", "Muon", "OneBitAdam", "ZeroOneAdam", "OneBitLamb"});
  if (choice >= std::size(available))
    throw UsageError(
        fmt::format("{}: the optimizer {} is not available in this version. AdamW, Adam, Lion, Adagrad and "
                    "SGD are.",
                    value.key(), value.json().dump()));
  settings.optimizer = available[choice];
  settings.optimizer_defaults = DefaultsOf::deepspeed;
}
void set_adam_w_mode(Settings& settings, const ConfigValue& value) {
  settings.adam_w_mode = value.boolean();
}
void set_torch_adam(Settings& settings, const ConfigValue& value) {
  settings.torch_adam = value.boolean();
}
void set_bf16_master(Settings& settings, const ConfigValue& value) {
  settings.master_dtype = value.boolean() ? MasterDType::bf16 : MasterDType::f32;
}
void set_bf16_moments(Settings& settings, const ConfigValue& value) {
  settings.moment_dtype = value.boolean() ? MomentDType::bf16 : MomentDType::f32;
}
void set_peak(Settings& settings, const ConfigValue& value) {
  settings.learning_rate = headrace::settings::fp32_number(value);  // warmup_max_lr goes before it
}
void set_betas(Settings& settings, const ConfigValue& value) {
  if (!value.json().is_array() || value.json().size() != 2) value.refuse("a list of two numbers");
  find_native("beta1")->set(settings, {value.key() + "[0]", value.json()[0]});
  find_native("beta2")->set(settings, {value.key() + "[1]", value.json()[1]});
}

void set_scheduler_type(Settings& settings, const ConfigValue& value) {
  const std::size_t choice =
      value.choice({"WarmupLR", "WarmupDecayLR", "WarmupCosineLR", "LRRangeTest", "OneCycle"});
  if (choice > 2)
    throw UsageError(
        fmt::format("{}: the scheduler {} is not available in this version. WarmupLR, WarmupDecayLR and "
                    "WarmupCosineLR are, or headrace.schedule with headrace.warmup_steps.",
                    value.key(), value.json().dump()));
  settings.scheduler.type = static_cast<DeepSpeedScheduler::Type>(choice + 1);
}
template <auto member>
void set_scheduler_number(Settings& settings, const ConfigValue& value) {
  settings.scheduler.*member = value.number(0, infinity);
}
template <auto member>
void set_scheduler_rate(Settings& settings, const ConfigValue& value) {
  settings.scheduler.*member = headrace::settings::fp32_number(value);
}
template <auto member>
void set_scheduler_count(Settings& settings, const ConfigValue& value) {
  settings.scheduler.*member = value.count();
}
void set_scheduler_shape(Settings& settings, const ConfigValue& value) {
  settings.scheduler.logarithmic = value.choice({"log", "linear"}) == 0;
}

using Table = std::vector<DeepSpeedKey>;
constexpr KeyClass works = KeyClass::works, not_available = KeyClass::not_available, hint = KeyClass::hint;

Table batch_keys() {
  return {
      {"train_batch_size", works, "global_batch_size", "null", "sequences of a step over all ranks"},
      {"train_micro_batch_size_per_gpu", works, "batch_size", "null", "sequences of one rank's micro-batch"},
      {"gradient_accumulation_steps", works, "accumulation", "null", "micro-batches of a step"},
      {"gradient_clipping", works, "clip", "1.0", "largest global gradient norm"},
      {"steps_per_print", works, "log_every", "null", "steps between progress lines"},
      {"prescale_gradients", not_available, "", "false", "gradients are summed first, then averaged"},
      {"gradient_predivide_factor", not_available, "", "1.0", "gradients are summed first, then averaged"},
      {"gradient_allreduce_op", not_available, "", "\"mean\"", "gradients are averaged over ranks"},
      {"sparse_gradients", not_available, "", "false", "gradients are dense"},
      {"managed_gradient_accumulation", not_available, "", "true", "accumulation is part of a step"},
      {"dataloader_drop_last", hint, "", "false", ""},
      {"zero_allow_untested_optimizer", hint, "", "false", ""},
      {"zero_force_ds_cpu_optimizer", hint, "", "true", ""},
      {"disable_allgather", hint, "", "false", ""},
      {"wall_clock_breakdown", hint, "", "false", ""},
      {"memory_breakdown", hint, "", "false", ""},
      {"dump_state", hint, "", "false", ""},
      {"log_level", hint, "", "null", ""},
  };
}

Table precision_keys() {
  return {
      {"bf16.enabled", works, "", "false", "bf16 when true, fp32 when false or left out and not fp16",
       set_bf16},
      {"fp16.enabled", works, "", "false", "fp16 when true", set_fp16},
      {"fp16.auto_cast", hint, "", "false", ""},
      {"fp16.loss_scale", works, "loss_scale", "0", "fixed loss scale; 0: dynamic"},
      {"fp16.initial_scale_power", works, "initial_scale_power", "16", "the first loss scale is 2 to it"},
      {"fp16.loss_scale_window", works, "loss_scale_window", "1000", "steps between doublings"},
      {"fp16.hysteresis", works, "loss_scale_hysteresis", "2", "overflows until the scale is halved"},
      {"fp16.consecutive_hysteresis", works, "consecutive_hysteresis", "false",
       "a step without overflow gives the hysteresis back"},
      {"fp16.min_loss_scale", works, "min_loss_scale", "1", "smallest loss scale"},
      {"fp16.fp16_master_weights_and_grads", not_available, "", "false", "master weights are fp32"},
      {"bf16.immediate_grad_update", hint, "", "false", ""},
      {"bf16.check_grad_overflow", not_available, "", "true",
       "steps with non-finite gradients are always skipped"},
      {"bf16.bf16_master_weights_and_grads", works, "master_dtype", "false",
       "a bf16 master, rounded stochastically; gradients are in the model's type in any case",
       set_bf16_master},
      {"bf16.bf16_optimizer_states", works, "moments", "false",
       "bf16 moments, rounded stochastically, with any master", set_bf16_moments},
      {"torch_autocast.enabled", not_available, "", "false",
       "choose the type with \"bf16\" or headrace.dtype"},
      {"torch_autocast.dtype", hint, "", "null", ""},
      {"torch_autocast.lower_precision_safe_modules", hint, "", "null", ""},
      {"data_types.grad_accum_dtype", not_available, "", "\"fp32\"", "micro-batches are accumulated in fp32"},
      {"data_types.param_dtype", not_available, "", "null",
       "choose the type with \"bf16\" or headrace.dtype"},
      {"data_types.buffer_dtype", hint, "", "null", ""},
      {"communication_data_type", not_available, "", "null",
       "gradients travel in the model's type and are summed in fp32"},
  };
}

Table zero_keys() {
  const std::string z = "zero_optimization.";
  return {
      {z + "stage", works, "stage", "0", "what is sharded over the ranks"},
      {z + "reduce_bucket_size", works, "bucket", "5e8", "elements of a reduction bucket", set_bucket_numel},
      {z + "stage3_prefetch_bucket_size", works, "prefetch_units", "5e7", "elements gathered ahead",
       set_prefetch_numel},
      {z + "prefetch_bucket_size", works, "prefetch_units", "5e7", "elements gathered ahead",
       set_prefetch_numel},
      {z + "stage3_param_persistence_threshold", works, "persistence_numel", "1e5",
       "elements of a unit that stays gathered"},
      {z + "param_persistence_threshold", works, "persistence_numel", "1e5",
       "elements of a unit that stays gathered"},
      {z + "sub_group_size", works, "swap_block", "1e9", "elements of one optimizer block", set_sub_group},
  };
}

Table zero_offload_keys() {
  const std::string z = "zero_optimization.offload_";
  return {
      {z + "optimizer.device", works, "offload_optimizer", "\"none\"", "tier of optimizer states"},
      {z + "optimizer.nvme_path", works, "swap_path", "null", "folder of the swap store"},
      {z + "optimizer.buffer_count", works, "swap_buffers", "4", "optimizer blocks in flight"},
      {z + "optimizer.pin_memory", works, "", "true", "false: host memory is not locked for copies",
       set_pinned},
      {z + "optimizer.pipeline_read", hint, "", "false", ""},
      {z + "optimizer.pipeline_write", hint, "", "false", ""},
      {z + "optimizer.pipeline", hint, "", "false", ""},
      {z + "optimizer.fast_init", hint, "", "false", ""},
      {z + "optimizer.super_offload", hint, "", "false", ""},
      {z + "optimizer.cpuadam_cores_perc", hint, "", "0.8", ""},
      {z + "optimizer.ratio", not_available, "", "1.0", "all optimizer states live in one tier"},
      {z + "param.device", works, "offload_parameters", "\"none\"", "tier of parameters, stage 3"},
      {z + "param.nvme_path", works, "", "null", "folder of the swap store, the same as the optimizer's",
       set_parameter_path},
      {z + "param.buffer_count", works, "parameter_buffers", "5", "blocks of parameters read ahead"},
      {z + "param.buffer_size", hint, "", "1e8", ""},
      {z + "param.max_in_cpu", hint, "", "1e9", ""},
      {z + "param.pin_memory", works, "", "true", "false: host memory is not locked for copies", set_pinned},
  };
}

Table zero_hints() {
  const std::string z = "zero_optimization.";
  return {
      {z + "contiguous_gradients", hint, "", "true", ""},
      {z + "reduce_scatter", hint, "", "true", ""},
      {z + "allgather_bucket_size", hint, "", "5e8", ""},
      {z + "use_multi_rank_bucket_allreduce", hint, "", "true", ""},
      {z + "allgather_partitions", hint, "", "true", ""},
      {z + "overlap_comm", hint, "", "null", ""},
      {z + "load_from_fp32_weights", hint, "", "true", ""},
      {z + "elastic_checkpoint", hint, "", "false", ""},
      {z + "stage3_model_persistence_threshold", hint, "", "null", ""},
      {z + "stage3_max_live_parameters", hint, "", "1e9", ""},
      {z + "stage3_max_reuse_distance", hint, "", "1e9", ""},
      {z + "stage3_gather_16bit_weights_on_model_save", hint, "", "false", ""},
      {z + "stage3_gather_fp16_weights_on_model_save", hint, "", "false", ""},
      {z + "stage3_module_granularity_threshold", hint, "", "0", ""},
      {z + "stage3_use_all_reduce_for_fetch_params", hint, "", "false", ""},
      {z + "stage3_allgather_sequential", hint, "", "false", ""},
      {z + "ignore_unused_parameters", hint, "", "true", ""},
      {z + "legacy_stage1", hint, "", "false", ""},
      {z + "round_robin_gradients", hint, "", "false", ""},
      {z + "memory_efficient_linear", hint, "", "true", ""},
      {z + "override_module_apply", hint, "", "true", ""},
      {z + "pipeline_loading_checkpoint", hint, "", "false", ""},
      {z + "log_trace_cache_warnings", hint, "", "false", ""},
      {z + "enable_sanity_checks", hint, "", "false", ""},
      {z + "save_muon_momentum_buffer_in_memory", hint, "", "false", ""},
      {z + "leaf_module", hint, "", "null", ""},
      {z + "cpu_offload_use_pin_memory", works, "", "null", "false: host memory is not locked for copies",
       set_pinned},
  };
}

Table zero_unavailable() {
  const std::string z = "zero_optimization.";
  return {
      {z + "zero_hpz_partition_size", not_available, "", "1", "parameters are sharded over all ranks"},
      {z + "zero_quantized_weights", not_available, "", "false", "communication is not quantised"},
      {z + "zero_quantized_nontrainable_weights", not_available, "", "false",
       "communication is not quantised"},
      {z + "zero_quantized_gradients", not_available, "", "false", "communication is not quantised"},
      {z + "zeropp_loco_param", not_available, "", "null", "communication is not quantised"},
      {z + "mics_shard_size", not_available, "", "-1", "states are sharded over all ranks"},
      {z + "mics_hierarchical_params_gather", not_available, "", "false",
       "states are sharded over all ranks"},
      {z + "zenflow", not_available, "", "null", "updates are never stale"},
      {z + "cpu_offload", not_available, "", "false", "write \"offload_optimizer\": {\"device\": \"cpu\"}"},
      {z + "cpu_offload_param", not_available, "", "false", "write \"offload_param\": {\"device\": \"cpu\"}"},
  };
}

Table optimizer_and_scheduler_keys() {
  using D = DeepSpeedScheduler;
  const std::string o = "optimizer.params.", s = "scheduler.params.";
  return {
      {"optimizer.type", works, "optimizer", "null",
       "AdamW, Adam (AdamW unless adam_w_mode is false), Lion, Adagrad or SGD; gives params that are left "
       "out "
       "DeepSpeed's defaults",
       set_optimizer_type},
      {"optimizer.legacy_fusion", hint, "", "false", ""},
      {o + "lr", works, "learning_rate", "1e-3",
       "learning rate, the peak of WarmupCosineLR; left out, 1e-3, Adagrad's 1e-2", set_peak},
      {o + "betas", works, "beta1", "[0.9, 0.999]", "decays of the two moments", set_betas},
      {o + "eps", works, "epsilon", "1e-8", "added to the root of the second moment"},
      {o + "weight_decay", works, "weight_decay", "0", "of matrices; norms and biases have none"},
      {o + "adam_w_mode", works, "adam_w_mode", "true", "Adam is AdamW when true", set_adam_w_mode},
      {o + "adamw_mode", works, "adam_w_mode", "true", "Adam is AdamW when true", set_adam_w_mode},
      {o + "bias_correction", not_available, "", "true", "bias is always corrected"},
      {o + "amsgrad", works, "amsgrad", "false", "Adam divides by the largest second moment so far"},
      {o + "momentum", works, "momentum", "0", "SGD: decay of its moment"},
      {o + "dampening", works, "dampening", "0", "SGD: part of the gradient that its moment leaves out"},
      {o + "nesterov", works, "nesterov", "false", "SGD: looks ahead by the momentum"},
      {o + "lr_decay", works, "lr_decay", "0", "Adagrad: the rate falls as 1 / (1 + steps * X)"},
      {o + "initial_accumulator_value", not_available, "", "0", "Adagrad's sum starts at 0"},
      {o + "maximize", works, "maximize", "false", "goes up the gradient"},
      {o + "fp32_optimizer_states", not_available, "", "true",
       "headrace.moments or bf16.bf16_optimizer_states says the type of moments"},
      {o + "torch_adam", works, "", "false",
       "true: weight_decay left out is torch's, for AdamW 0.01; the arithmetic is torch's in any case",
       set_torch_adam},
      {"scheduler.type", works, "schedule", "null", "WarmupLR, WarmupDecayLR or WarmupCosineLR",
       set_scheduler_type},
      {s + "warmup_min_lr", works, "", "0", "first learning rate, and WarmupDecayLR's last",
       set_scheduler_rate<&D::minimum_rate>},
      {s + "warmup_max_lr", works, "", "null",
       "peak learning rate; left out, optimizer.params.lr, WarmupDecayLR's 1e-3",
       set_scheduler_rate<&D::maximum_rate>},
      {s + "warmup_num_steps", works, "warmup_steps", "1000", "steps of warm-up",
       set_scheduler_count<&D::warmup_steps>},
      {s + "warmup_type", works, "", "\"log\"", "log or linear", set_scheduler_shape},
      {s + "total_num_steps", works, "", "null", "steps until the decay ends",
       set_scheduler_count<&D::total_steps>},
      {s + "warmup_min_ratio", works, "", "0", "first learning rate over the peak",
       set_scheduler_number<&D::minimum_ratio>},
      {s + "cos_min_ratio", works, "", "1e-4", "last learning rate over the peak",
       set_scheduler_number<&D::cosine_minimum_ratio>},
  };
}

Table activation_and_io_keys() {
  const std::string a = "activation_checkpointing.";
  return {
      {a + "number_checkpoints", works, "recompute", "null", "any number: every block is recomputed",
       set_recompute},
      {a + "partition_activations", hint, "", "false", ""},
      {a + "contiguous_memory_optimization", hint, "", "false", ""},
      {a + "synchronize_checkpoint_boundary", hint, "", "false", ""},
      {a + "profile", hint, "", "false", ""},
      {a + "cpu_checkpointing", not_available, "", "false",
       "activations stay on the device; headrace.recompute saves memory"},
      {"aio.block_size", works, "io_request", "1048576", "bytes of one request to a drive"},
      {"aio.queue_depth", works, "io_depth", "8", "requests in flight on a drive"},
      {"aio.intra_op_parallelism", hint, "", "1", ""},
      {"aio.thread_count", hint, "", "1", ""},
      {"aio.single_submit", hint, "", "false", ""},
      {"aio.overlap_events", hint, "", "true", ""},
      {"aio.use_gds", hint, "", "false", ""},
  };
}

// Sections whose every key is about reports or about checkpoints, which this version does not write.
Table whole_sections() {
  return {
      {"checkpoint", hint, "", "null", ""},
      {"tensorboard", hint, "", "null", ""},
      {"csv_monitor", hint, "", "null", ""},
      {"wandb", hint, "", "null", ""},
      {"comet", hint, "", "null", ""},
      {"flops_profiler", hint, "", "null", ""},
      {"comms_logger", hint, "", "null", ""},
      {"autotuning", hint, "", "null", ""},
      {"elasticity.enabled", not_available, "", "false", "the world size is fixed for a run"},
      {"elasticity.max_train_batch_size", hint, "", "2000", ""},
      {"elasticity.micro_batch_sizes", hint, "", "null", ""},
      {"elasticity.min_gpus", hint, "", "1", ""},
      {"elasticity.max_gpus", hint, "", "10000", ""},
      {"elasticity.min_time", hint, "", "0", ""},
      {"elasticity.prefer_larger_batch", hint, "", "true", ""},
      {"elasticity.ignore_non_elastic_batch_info", hint, "", "false", ""},
  };
}

}  // namespace

const std::vector<DeepSpeedKey>& deepspeed_table() {
  static const Table all = [] {
    Table table;
    for (const auto& make :
         {batch_keys, precision_keys, zero_keys, zero_offload_keys, zero_hints, zero_unavailable,
          optimizer_and_scheduler_keys, activation_and_io_keys, whole_sections})
      for (DeepSpeedKey& key : make()) table.push_back(std::move(key));
    return table;
  }();
  return all;
}

std::vector<KnownKey> deepspeed_keys() {
  std::vector<KnownKey> result;
  for (const DeepSpeedKey& key : deepspeed_table()) result.push_back({key.path, key.key_class, key.meaning});
  return result;
}

}  // namespace headrace

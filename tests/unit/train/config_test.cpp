#include "headrace/config.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "headrace/errors.h"

namespace headrace {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using Json = nlohmann::json;

ResolvedOptions resolve(const std::string& json,
                        const std::vector<std::pair<std::string, std::string>>& flags = {}, int world = 1) {
  ConfigDraft draft;
  draft.set_flag("model", "gpt2-mini");
  if (!json.empty()) draft.read_text(json, "run.json");
  for (const auto& [name, value] : flags) draft.set_flag(name, value);
  LaunchInfo launch;
  launch.size = launch.local_size = world;
  if (world > 1) launch.launcher = "mpirun";
  return draft.resolve(launch);
}

std::string refusal(const std::string& json,
                    const std::vector<std::pair<std::string, std::string>>& flags = {}) {
  try {
    resolve(json, flags);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(Config, deepspeed_keys_set_what_they_name) {
  const ResolvedOptions options = resolve(R"({
    "train_batch_size": 24, "train_micro_batch_size_per_gpu": 4, "gradient_clipping": 0.5, "steps_per_print": 7,
    "bf16": {"enabled": true},
    "optimizer": {"type": "AdamW", "params": {"lr": 2e-3, "betas": [0.8, 0.99], "eps": 1e-6, "weight_decay": 0.01}},
    "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "nvme", "nvme_path": "/swap", "buffer_count": 5},
      "offload_param": {"device": "cpu"}, "reduce_bucket_size": 4096, "sub_group_size": 8192,
      "stage3_prefetch_bucket_size": 0, "stage3_param_persistence_threshold": 1000}})",
                                          {}, 2);
  EXPECT_EQ(options.batch.accumulation, 3u);
  EXPECT_EQ(options.engine.accumulation, 3);
  EXPECT_EQ(options.engine.clip, 0.5);
  EXPECT_EQ(options.log_every, 7u);
  EXPECT_EQ(options.engine.dtype, DType::bf16);
  EXPECT_EQ(options.schedule.peak, 2e-3);
  EXPECT_EQ(options.engine.optimizer.beta1, 0.8);
  EXPECT_EQ(options.engine.optimizer.beta2, 0.99);
  EXPECT_EQ(options.engine.optimizer.epsilon, 1e-6);
  EXPECT_EQ(options.engine.optimizer.weight_decay, 0.01);
  EXPECT_EQ(options.engine.stage, 3);
  EXPECT_EQ(options.engine.optimizer_tier, Tier::nvme);
  EXPECT_EQ(options.engine.parameter_tier, Tier::host);
  EXPECT_EQ(options.engine.swap_directories, (std::vector<std::string>{"/swap/rank-00000"}));
  EXPECT_EQ(options.engine.swap_buffers, 5u);
  EXPECT_EQ(options.engine.bucket_bytes, 4096u * 2);
  EXPECT_EQ(options.engine.swap_block_bytes, 8192u * 12);
  EXPECT_EQ(options.engine.prefetch_units, 0u);
  EXPECT_EQ(options.engine.persistence_numel, 1000u);
}

TEST(Config, flags_override_the_file) {
  const ResolvedOptions options =
      resolve(R"({"gradient_clipping": 0.5, "headrace": {"steps": 7}})", {{"clip", "2"}});
  EXPECT_EQ(options.engine.clip, 2.0);
  EXPECT_EQ(options.steps, 7u);
}

// FIELD-CASES G2.
TEST(Config, an_unknown_key_names_the_nearest_one_and_its_section) {
  EXPECT_THAT(refusal(R"({"train_bach_size": 8})"),
              AllOf(HasSubstr("train_bach_size"), HasSubstr("\"train_batch_size\"")));
  EXPECT_THAT(refusal(R"({"zero_optimization": {"offload_optimiser": {}}})"),
              HasSubstr("\"offload_optimizer\" of the section \"zero_optimization\""));
  EXPECT_THAT(refusal(R"({"stage": 3})"), HasSubstr("\"stage\" of the section \"zero_optimization\""));
  EXPECT_THAT(refusal(R"({"zero_optimization": {"gradient_clipping": 1}})"),
              HasSubstr("\"gradient_clipping\", at the top level"));
  EXPECT_THAT(refusal(R"({"headrace": {"learning_rat": 1}})"),
              HasSubstr("\"learning_rate\" of the section \"headrace\""));
  EXPECT_THAT(refusal(R"({"qqqqqqqqqqqqqqqqqq": 1})"),
              AllOf(HasSubstr("is not a known key"), testing::Not(HasSubstr("Did you mean"))));
}

TEST(Config, a_key_that_cannot_work_at_the_stage_is_an_error) {
  EXPECT_THAT(refusal(R"({"zero_optimization": {"stage": 2, "offload_param": {"device": "cpu"}}})"),
              HasSubstr("stage 3 only"));
  EXPECT_THAT(refusal("", {{"stage", "1"}, {"offload_gradients", "cpu"}}), HasSubstr("stages 2 and 3"));
}

// FIELD-CASES A16.
TEST(Config, nvme_without_a_path_is_an_error_that_names_the_key) {
  EXPECT_THAT(refusal(R"({"zero_optimization": {"offload_optimizer": {"device": "nvme"}}})"),
              AllOf(HasSubstr("--swap-path"), HasSubstr("nvme_path")));
  EXPECT_THAT(refusal("", {{"swap_path", "/x"}}), HasSubstr("would not be used"));
}

TEST(Config, a_key_that_is_not_available_is_an_error_unless_it_asks_for_nothing) {
  EXPECT_THAT(refusal(R"({"zero_optimization": {"zero_quantized_gradients": true}})"),
              HasSubstr("quantised"));
  EXPECT_THAT(refusal(R"({"zero_optimization": {"offload_optimizer": {"ratio": 0.5}}})"), HasSubstr("ratio"));
  EXPECT_THAT(refusal(R"({"zero_optimization": {"offload_optimizer": {"ratio": 1}}})"), IsEmpty());
  EXPECT_THAT(refusal(R"({"optimizer": {"type": "Lion"}})"), AllOf(HasSubstr("Lion"), HasSubstr("AdamW")));
  EXPECT_THAT(refusal(R"({"scheduler": {"type": "OneCycle"}})"), HasSubstr("WarmupCosineLR"));
  EXPECT_THAT(refusal("", {{"resume", "latest"}}), HasSubstr("swap"));
}

TEST(Config, fp16_and_its_loss_scale_have_deepspeeds_keys_and_defaults) {
  const EngineOptions defaults = resolve(R"({"fp16": {"enabled": true}})").engine;
  EXPECT_EQ(defaults.dtype, DType::f16);
  EXPECT_EQ(initial_loss_scale(defaults), (LossScale{.scale = 65536, .good_steps = 0, .hysteresis_left = 2}));
  EXPECT_EQ(defaults.loss_scale.window, 1000u);
  EXPECT_EQ(defaults.loss_scale.minimum, 1);
  EXPECT_FALSE(defaults.loss_scale.consecutive_hysteresis);
  const LossScaleOptions given =
      resolve(R"({"fp16": {"enabled": true, "auto_cast": false, "loss_scale": 0, "initial_scale_power": 12,
        "loss_scale_window": 7, "hysteresis": 3, "consecutive_hysteresis": true, "min_loss_scale": 0.5}})")
          .engine.loss_scale;
  EXPECT_EQ(given.fixed, 0);
  EXPECT_EQ(given.initial_power, 12);
  EXPECT_EQ(given.window, 7u);
  EXPECT_EQ(given.hysteresis, 3);
  EXPECT_TRUE(given.consecutive_hysteresis);
  EXPECT_EQ(given.minimum, 0.5);
  const ResolvedOptions fixed = resolve("", {{"dtype", "fp16"}, {"loss_scale", "1024"}});
  EXPECT_EQ(initial_loss_scale(fixed.engine).scale, 1024);
  EXPECT_EQ(initial_loss_scale(resolve("").engine).scale, 1);
}

TEST(Config, one_of_bf16_and_fp16_is_chosen_by_the_section_that_is_switched_on) {
  const auto dtype = [](const char* json) { return resolve(json).engine.dtype; };
  EXPECT_EQ(dtype(R"({"bf16": {"enabled": false}, "fp16": {"enabled": true}})"), DType::f16);
  EXPECT_EQ(dtype(R"({"fp16": {"enabled": false}, "bf16": {"enabled": true}})"), DType::bf16);
  EXPECT_EQ(dtype(R"({"fp16": {"enabled": false}, "bf16": {"enabled": false}})"), DType::f32);
  EXPECT_EQ(dtype(R"({"fp16": {"enabled": false}})"), DType::bf16);
  EXPECT_EQ(dtype(R"({"fp16": {"enabled": "auto"}, "bf16": {"enabled": "auto"}})"), DType::bf16);
  EXPECT_THAT(refusal(R"({"fp16": {"enabled": true}, "bfloat16": {"enabled": true}})"),
              AllOf(HasSubstr("bf16.enabled"), HasSubstr("fp16.enabled"), HasSubstr("both")));
  EXPECT_THAT(refusal(R"({"fp16": {"enabled": true}, "headrace": {"dtype": "fp32"}})"),
              AllOf(HasSubstr("fp16.enabled"), HasSubstr("headrace.dtype")));
  EXPECT_EQ(resolve(R"({"fp16": {"enabled": true}})", {{"dtype", "fp32"}}).engine.dtype, DType::f32);
}

// FIELD-CASES N5.
TEST(Config, a_loss_scale_without_meaning_is_refused_by_its_key) {
  for (const char* const key : {"loss_scale_window", "hysteresis", "min_loss_scale"})
    EXPECT_THAT(refusal(fmt::format(R"({{"fp16": {{"enabled": true, "{}": 0}}}})", key)), HasSubstr(key));
  for (const char* const key : {"loss_scale", "initial_scale_power", "min_loss_scale"})
    EXPECT_THAT(refusal(fmt::format(R"({{"fp16": {{"enabled": true, "{}": -1}}}})", key)), HasSubstr(key));
  EXPECT_THAT(refusal(R"({"fp16": {"enabled": true, "initial_scale_power": 2, "min_loss_scale": 8}})"),
              HasSubstr("above the first"));
}

TEST(Config, a_loss_scale_of_another_type_is_an_error_as_a_flag_and_noted_in_a_section_that_is_off) {
  EXPECT_THAT(refusal("", {{"loss_scale", "128"}}),
              AllOf(HasSubstr("--loss-scale"), HasSubstr("--dtype fp16")));
  EXPECT_THAT(refusal("", {{"dtype", "fp16"}, {"loss_scale", "128"}, {"loss_scale_window", "5"}}),
              AllOf(HasSubstr("--loss-scale-window"), HasSubstr("without a fixed")));
  const ResolvedOptions options =
      resolve(R"({"bf16": {"enabled": true}, "fp16": {"enabled": false, "loss_scale_window": 5}})");
  ASSERT_EQ(options.notes.size(), 1u);
  EXPECT_THAT(options.notes[0], HasSubstr("fp16.loss_scale_window"));
}

TEST(Config, hints_are_listed_in_one_note) {
  const auto options = resolve(
      R"({"aio": {"block_size": 1}, "zero_optimization": {"overlap_comm": true}, "wandb": {"enabled": true}})");
  ASSERT_EQ(options.notes.size(), 1u);
  EXPECT_THAT(options.notes[0],
              AllOf(HasSubstr("aio.block_size"), HasSubstr("overlap_comm"), HasSubstr("wandb")));
}

// FIELD-CASES G3: every numeric key, every kind of wrong value.
class NumericKey : public testing::TestWithParam<const char*> {};
TEST_P(NumericKey, wrong_values_are_refused_with_the_name_and_auto_keeps_the_default) {
  const std::string path = GetParam();
  const auto with = [&](const std::string& value) {
    std::string json = value;
    std::string rest = path;
    while (!rest.empty()) {
      const std::size_t dot = rest.rfind('.');
      json = fmt::format("{{\"{}\": {}}}", dot == std::string::npos ? rest : rest.substr(dot + 1), json);
      rest = dot == std::string::npos ? "" : rest.substr(0, dot);
    }
    return json;
  };
  for (const char* value : {"-1", "\"nan\"", "\"512MQ\"", "\"\"", "[]", "{}", "true", "\"-3\"", "1e400"})
    EXPECT_NE(refusal(with(value)), "") << path << " = " << value;
  for (const char* value : {"-1", "\"nan\"", "true"})
    EXPECT_THAT(refusal(with(value)), HasSubstr(path)) << value;
  for (const char* value : {"null", "\"auto\""})
    EXPECT_EQ(refusal(with(value)), "") << path << " = " << value;
}
INSTANTIATE_TEST_SUITE_P(
    Config, NumericKey,
    testing::Values("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps",
                    "gradient_clipping", "steps_per_print", "zero_optimization.stage",
                    "zero_optimization.reduce_bucket_size", "zero_optimization.sub_group_size",
                    "zero_optimization.stage3_prefetch_bucket_size",
                    "zero_optimization.stage3_param_persistence_threshold",
                    "zero_optimization.offload_optimizer.buffer_count", "optimizer.params.lr",
                    "optimizer.params.eps", "optimizer.params.weight_decay", "headrace.learning_rate",
                    "headrace.steps", "headrace.device_memory", "headrace.swap_block", "headrace.seed",
                    "headrace.timeout", "headrace.beta1"),
    [](const auto& tested) {
      std::string name = tested.param;
      std::replace(name.begin(), name.end(), '.', '_');
      return name;
    });

TEST(Config, numbers_in_strings_and_in_scientific_notation_are_read) {
  const auto options =
      resolve(R"({"zero_optimization": {"stage3_param_persistence_threshold": "1e5", "sub_group_size": 1e9},
                                   "headrace": {"seed": "18446744073709551615", "device_memory": "512MB"}})");
  EXPECT_EQ(options.engine.persistence_numel, 100000u);
  EXPECT_EQ(options.seed, ~std::uint64_t{0});
  EXPECT_EQ(options.device_memory_bytes, 512000000u);
  EXPECT_THAT(refusal(R"({"zero_optimization": {"reduce_bucket_size": "512MB"}})"),
              HasSubstr("whole number"));
  EXPECT_THAT(refusal(R"({"train_batch_size": 1.5})"), HasSubstr("whole number"));
}

TEST(Config, element_counts_far_above_the_model_are_bounded_by_its_largest_unit) {
  const auto options = resolve(
      R"({"zero_optimization": {"reduce_bucket_size": 5e8, "sub_group_size": 1e9, "stage3_prefetch_bucket_size": 5e9}})");
  EXPECT_LT(options.engine.bucket_bytes, 100u << 20);
  EXPECT_LT(options.engine.swap_block_bytes, 100u << 20);
  EXPECT_LE(options.engine.prefetch_units, 8u);
}

TEST(Config, two_keys_for_one_thing_are_a_contradiction) {
  EXPECT_THAT(refusal(R"({"train_micro_batch_size_per_gpu": 4, "headrace": {"batch_size": 8}})"),
              AllOf(HasSubstr("train_micro_batch_size_per_gpu"), HasSubstr("headrace.batch_size")));
}

// FIELD-CASES N11.
TEST(Config, learning_rates_below_zero_and_not_numbers_are_refused_and_zero_is_not) {
  EXPECT_THAT(refusal("", {{"learning_rate", "-1e-3"}}), HasSubstr("--learning-rate"));
  EXPECT_THAT(refusal("", {{"learning_rate", "nan"}}), HasSubstr("--learning-rate"));
  EXPECT_THAT(refusal("", {{"learning_rate", "inf"}}), HasSubstr("--learning-rate"));
  EXPECT_EQ(resolve("", {{"learning_rate", "0"}, {"warmup_steps", "0"}}).schedule.peak, 0);
}

TEST(Config, deepspeed_schedulers_have_deepspeed_defaults) {
  const auto cosine = resolve(R"({"optimizer": {"type": "Adam", "params": {"lr": 1e-2}},
    "scheduler": {"type": "WarmupCosineLR", "params": {"total_num_steps": 50, "warmup_num_steps": 5, "warmup_type": "linear"}}})");
  EXPECT_EQ(cosine.schedule.peak, 1e-2);
  EXPECT_DOUBLE_EQ(cosine.schedule.floor, 1e-6);
  EXPECT_EQ(cosine.schedule.total_steps, 50u);
  EXPECT_EQ(cosine.schedule.warmup, ScheduleOptions::Warmup::deepspeed_linear);
  const auto warmup = resolve(R"({"scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": 3e-3}}})");
  EXPECT_EQ(warmup.schedule.peak, 3e-3);
  EXPECT_EQ(warmup.schedule.decay, ScheduleOptions::Decay::constant);
  EXPECT_EQ(warmup.schedule.warmup_steps, 1000u);
  EXPECT_THAT(refusal(R"({"scheduler": {"type": "WarmupLR", "params": {"cos_min_ratio": 0.1}}})"),
              HasSubstr("WarmupLR"));
}

TEST(Config, the_printed_configuration_is_a_configuration_with_the_same_effect) {
  for (const std::string& json :
       {std::string(R"({"train_batch_size": 24, "zero_optimization": {"stage": 3, "sub_group_size": 8192,
         "offload_param": {"device": "cpu"}, "offload_optimizer": {"device": "nvme", "nvme_path": "/a b/é"}}})"),
        std::string(R"({"scheduler": {"type": "WarmupDecayLR", "params": {"total_num_steps": 9}}})")}) {
    const std::string once = resolve(json, {{"seed", "7"}, {"quiet", "true"}}).effective_config;
    ConfigDraft draft;
    draft.read_text(once, "printed");
    EXPECT_EQ(draft.resolve({}).effective_config, once);
  }
}

TEST(Config, the_printed_configuration_means_the_same_at_another_world_size) {
  for (const char* batch :
       {R"("train_batch_size": 24)", R"("train_micro_batch_size_per_gpu": 3)",
        R"("train_batch_size": 24, "gradient_accumulation_steps": 3)", R"("steps_per_print": 1)"}) {
    const std::string json = fmt::format("{{{}}}", batch);
    const std::string printed = resolve(json, {}, 1).effective_config;
    for (const int world : {1, 2, 4}) {
      const BatchSizes direct = resolve(json, {}, world).batch, again = resolve(printed, {}, world).batch;
      EXPECT_EQ(again.global, direct.global) << batch << world;
      EXPECT_EQ(again.micro, direct.micro) << batch << world;
      EXPECT_EQ(again.accumulation, direct.accumulation) << batch << world;
    }
  }
}

TEST(Config, a_limit_of_nothing_is_refused_and_says_how_to_have_none) {
  for (const char* limit : {"device_memory", "host_memory"}) {
    EXPECT_THAT(refusal("", {{limit, "0"}}), HasSubstr("Leave it out for no limit"));
    EXPECT_THAT(refusal(fmt::format(R"({{"headrace": {{"{}": 0}}}})", limit)), HasSubstr("Leave it out"));
    EXPECT_THAT(refusal(fmt::format(R"({{"headrace": {{"{}": "1.5"}}}})", limit)), HasSubstr("fraction"));
  }
}

TEST(Config, rates_and_times_that_nothing_can_run_with_are_refused) {
  EXPECT_THAT(refusal("", {{"link_bandwidth", "1"}}),
              AllOf(HasSubstr("--link-bandwidth"), HasSubstr("1MB/s")));
  EXPECT_THAT(refusal("", {{"link_bandwidth", "0"}}), HasSubstr("1MB/s"));
  EXPECT_THAT(refusal("", {{"timeout", "0"}}), HasSubstr("--timeout"));
  EXPECT_THAT(refusal("", {{"timeout", "1e30"}}), HasSubstr("--timeout"));
}

TEST(Config, buffers_of_no_or_of_overflowing_size_are_refused_with_the_bounds) {
  for (const char* size : {"0", "1KiB", "65GiB", "8000PiB"})
    EXPECT_THAT(refusal("", {{"swap_block", size}}), HasSubstr("from 48.0 KiB to 64.0 GiB")) << size;
  for (const char* size : {"0", "65GiB", "8000PiB"})
    EXPECT_THAT(refusal("", {{"bucket", size}}), HasSubstr("from 1 byte to 64.0 GiB")) << size;
}

TEST(Config, numbers_that_are_too_large_name_the_largest) {
  for (const char* number : {"99999999999999999999", "1e30", "1000000000000001"})
    EXPECT_THAT(refusal("", {{"steps", number}}), HasSubstr("too large. The largest is 1000000000000000"))
        << number;
  EXPECT_THAT(refusal(R"({"headrace": {"steps": 99999999999999999999}})"), HasSubstr("The largest is"));
  EXPECT_THAT(refusal("", {{"seed", "18446744073709551616"}}),
              HasSubstr("The largest is 18446744073709551615"));
  EXPECT_THAT(refusal("", {{"batch_size", "3000000000"}}), HasSubstr("from 1 to 2147483647"));
  EXPECT_THAT(refusal("", {{"clip", "1e400"}}),
              HasSubstr("beyond what a 64-bit floating-point number holds"));
}

TEST(Config, what_would_change_results_but_cannot_is_refused_with_what_it_needs) {
  EXPECT_THAT(refusal("", {{"durability", "step"}}),
              AllOf(HasSubstr("--durability"), HasSubstr("--offload-optimizer nvme")));
  EXPECT_THAT(refusal("", {{"eval_batches", "3"}}),
              AllOf(HasSubstr("--eval-batches"), HasSubstr("--eval-data")));
  EXPECT_THAT(refusal("", {{"eval_every", "3"}}), HasSubstr("--eval-data"));
  EXPECT_THAT(refusal(R"({"headrace": {"durability": "none"}})"), HasSubstr("headrace.durability"));
  EXPECT_THAT(refusal("", {{"schedule", "constant"}, {"minimum_rate_ratio", "0.2"}}),
              HasSubstr("--minimum-rate-ratio"));
  EXPECT_EQ(refusal("", {{"eval_batches", "3"}, {"eval_data", "x"}}), "");
}

TEST(Config, parameters_and_gradients_on_nvme_share_the_optimizers_folder) {
  const auto section = [](const std::string& offload) {
    return R"({"zero_optimization": {"stage": 3, "offload_param": {"device": "nvme", "nvme_path": "/swap", "buffer_count": 7})" +
           offload + "}}";
  };
  const auto options = resolve(section(""), {{"offload_gradients", "nvme"}, {"gradient_buffers", "3"}});
  EXPECT_EQ(options.engine.parameter_tier, Tier::nvme);
  EXPECT_EQ(options.engine.gradient_tier, Tier::nvme);
  EXPECT_EQ(options.engine.parameter_buffers, 7u);
  EXPECT_EQ(options.engine.gradient_buffers, 3u);
  EXPECT_EQ(options.engine.swap_directories, std::vector<std::string>{"/swap/rank-00000"});
  EXPECT_EQ(refusal(section(R"(, "offload_optimizer": {"device": "nvme", "nvme_path": "/swap"})")), "");
  EXPECT_THAT(refusal(section(R"(, "offload_optimizer": {"device": "nvme", "nvme_path": "/other"})")),
              HasSubstr("both live in one place"));
  EXPECT_THAT(refusal("", {{"stage", "3"}, {"offload_parameters", "nvme"}}), HasSubstr("--swap-path"));
  EXPECT_THAT(refusal("", {{"stage", "2"}, {"offload_gradients", "nvme"}}), HasSubstr("--swap-path"));
}

TEST(Config, hints_without_effect_are_one_note_with_what_they_need) {
  const auto options =
      resolve(R"({"aio": {"block_size": 1}, "zero_optimization": {"sub_group_size": 4096}})",
              {{"swap_buffers", "4"}, {"prefetch_units", "2"}, {"link_bandwidth", "8GB/s"}, {"io", "auto"}});
  ASSERT_EQ(options.notes.size(), 1u);
  for (const char* name : {"aio.block_size", "zero_optimization.sub_group_size", "--swap-buffers",
                           "--prefetch-units", "--link-bandwidth", "--io", "needs optimizer states on NVMe",
                           "need something on NVMe", "needs stage 3"})
    EXPECT_THAT(options.notes[0], HasSubstr(name));
  const auto used = resolve("", {{"swap_buffers", "4"},
                                 {"prefetch_units", "2"},
                                 {"link_bandwidth", "8GB/s"},
                                 {"io", "auto"},
                                 {"offload_optimizer", "nvme"},
                                 {"swap_path", "/swap"},
                                 {"stage", "3"}});
  EXPECT_THAT(used.notes, IsEmpty());
}

TEST(Config, io_uring_can_be_required_and_then_threads_cannot_be_asked_for) {
  std::vector<std::pair<std::string, std::string>> flags = {{"offload_optimizer", "nvme"},
                                                            {"swap_path", "/swap"}};
  EXPECT_EQ(resolve("", flags).io, IoKind::automatic);
  flags.emplace_back("require_io_uring", "true");
  EXPECT_EQ(resolve("", flags).io, IoKind::io_uring);
  flags.emplace_back("io", "threads");
  EXPECT_THAT(refusal("", flags), AllOf(HasSubstr("--require-io-uring"), HasSubstr("--io threads")));
}

TEST(Config, polling_is_asked_for_by_flag_or_key_and_is_of_io_uring_alone) {
  std::vector<std::pair<std::string, std::string>> flags = {{"offload_optimizer", "nvme"},
                                                            {"swap_path", "/swap"}};
  EXPECT_FALSE(resolve("", flags).poll_completions || resolve("", flags).poll_submissions);
  const ResolvedOptions by_key =
      resolve(R"({"headrace": {"poll_completions": true, "poll_submissions": false}})", flags);
  EXPECT_TRUE(by_key.poll_completions && !by_key.poll_submissions);
  EXPECT_TRUE(resolve(by_key.effective_config).poll_completions);
  flags.emplace_back("poll_submissions", "true");
  EXPECT_TRUE(resolve("", flags).poll_submissions);
  flags.emplace_back("io", "threads");
  EXPECT_THAT(refusal("", flags), AllOf(HasSubstr("--poll-submissions"), HasSubstr("--io threads")));
  const auto without_nvme = resolve("", {{"poll_completions", "true"}, {"poll_submissions", "true"}});
  ASSERT_EQ(without_nvme.notes.size(), 1u);
  EXPECT_THAT(without_nvme.notes[0], AllOf(HasSubstr("--poll-completions"), HasSubstr("--poll-submissions"),
                                           HasSubstr("need something on NVMe")));
}

TEST(Config, swap_paths_are_a_text_or_a_list_and_the_flag_may_be_repeated) {
  using Paths = std::vector<std::string>;
  const std::string list = R"({"headrace": {"swap_path": ["/a", "/b", "/c"], "swap_parity": 1,
                                            "offload_optimizer": "nvme"}})";
  const ResolvedOptions options = resolve(list);
  EXPECT_EQ(options.swap_paths, (Paths{"/a", "/b", "/c"}));
  EXPECT_EQ(options.engine.swap_directories, (Paths{"/a/rank-00000", "/b/rank-00000", "/c/rank-00000"}));
  EXPECT_EQ(options.engine.swap_parity, 1u);
  EXPECT_EQ(resolve(options.effective_config).swap_paths, options.swap_paths);
  EXPECT_EQ(resolve(R"({"headrace": {"swap_path": "/a", "offload_optimizer": "nvme"}})").swap_paths,
            Paths{"/a"});
  ConfigDraft draft;
  draft.set_flag("model", "gpt2-mini");
  draft.read_text(list, "run.json");
  draft.set_flag("swap_path", Paths{"/x", "/y"});
  draft.set_flag("swap_path_rates", Paths{"1GB/s", "2GB/s"});
  draft.set_flag("swap_parity", "0");
  const ResolvedOptions flags = draft.resolve({});
  EXPECT_EQ(flags.swap_paths, (Paths{"/x", "/y"}));
  EXPECT_EQ(flags.engine.swap_path_rates, (std::vector<double>{1e9, 2e9}));
  EXPECT_THAT(flags.effective_config, HasSubstr("2000000000"));
}

// FIELD-CASES A16.
TEST(Config, swap_paths_that_make_no_sense_together_are_refused) {
  const auto with = [](const std::string& keys) {
    return refusal(R"({"headrace": {"offload_optimizer": "nvme", )" + keys + "}}");
  };
  EXPECT_THAT(with(R"("swap_path": ["/a", "/b/../a/"])"), HasSubstr("given twice"));
  EXPECT_THAT(with(R"("swap_path": ["/a", "/b"], "swap_parity": 2)"), HasSubstr("at least 3 swap paths"));
  EXPECT_THAT(with(R"("swap_path": ["/a", "/b"], "swap_path_rates": [1e9])"), HasSubstr("rates"));
  EXPECT_THAT(with(R"("swap_path": [])"), HasSubstr("at least one value"));
  EXPECT_THAT(with(R"("swap_path": ["/a", 3])"), HasSubstr("a text"));
  EXPECT_THAT(refusal("", {{"swap_parity", "1"}}), HasSubstr("something on NVMe"));
}

TEST(Config, rates_of_swap_paths_may_stand_in_one_text_and_errors_show_it_whole) {
  std::vector<std::pair<std::string, std::string>> flags = {{"offload_optimizer", "nvme"},
                                                            {"swap_path_rates", "3GB/s,1GB/s"}};
  EXPECT_EQ(resolve(R"({"headrace": {"swap_path": ["/a", "/b"]}})", flags).engine.swap_path_rates,
            (std::vector<double>{3e9, 1e9}));
  EXPECT_THAT(refusal("", {{"swap_path_rates", "3GB/s;1GB/s"}}), HasSubstr("\"3GB/s;1GB/s\""));
  EXPECT_THAT(refusal("", {{"swap_path_rates", "3GB/s,,1GB/s"}}), HasSubstr("\"3GB/s,,1GB/s\""));
  EXPECT_THAT(refusal("", {{"swap_path_rates", "3GB/s,0"}}), HasSubstr("above 0"));
  flags.emplace_back("swap_path", "/a");
  EXPECT_THAT(refusal("", flags), HasSubstr("--swap-path-rates has 2 rates for 1 swap path."));
}

TEST(Config, a_refusal_names_the_key_of_the_file_or_the_flag_whichever_gave_the_value) {
  const auto with = [](const std::string& keys) { return refusal(R"({"headrace": {)" + keys + "}}"); };
  EXPECT_THAT(with(R"("offload_optimizer": "nvme", "swap_path": "/a", "swap_parity": 1)"),
              AllOf(HasSubstr("\"headrace.swap_parity\" 1"), Not(HasSubstr("--swap-parity"))));
  EXPECT_THAT(with(R"("sequence_length": 100000)"), HasSubstr("\"headrace.sequence_length\" 100000"));
  EXPECT_THAT(with(R"("swap_path": "/a")"), HasSubstr("\"headrace.swap_path\" /a would not be used"));
  EXPECT_THAT(with(R"("resume": "swap")"), HasSubstr("\"headrace.resume\" swap needs"));
  EXPECT_THAT(refusal("", {{"sequence_length", "100000"}}), HasSubstr("--sequence-length 100000"));
}

TEST(Config, a_block_size_that_is_rounded_is_noted_with_what_is_used) {
  const auto notes = [](const std::string& size) {
    return resolve("", {{"offload_optimizer", "nvme"}, {"swap_path", "/a"}, {"swap_block", size}}).notes;
  };
  EXPECT_THAT(notes("786432"), IsEmpty());
  EXPECT_THAT(notes("786433"),
              ElementsAre(AllOf(HasSubstr("--swap-block"), HasSubstr("786432 bytes instead of 786433"))));
}

TEST(Config, a_warm_up_longer_than_the_run_is_noted) {
  const auto options = resolve("", {{"steps", "10"}, {"warmup_steps", "11"}});
  ASSERT_EQ(options.notes.size(), 1u);
  EXPECT_THAT(options.notes[0], AllOf(HasSubstr("11"), HasSubstr("10"), HasSubstr("never reaches its peak")));
  EXPECT_THAT(resolve("", {{"steps", "10"}, {"warmup_steps", "10"}}).notes, IsEmpty());
}

TEST(Config, a_learning_rate_flag_overrides_the_schedulers_peak_of_the_file) {
  const char* json = R"({"optimizer": {"params": {"lr": 1e-2}},
                         "scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": 3e-3}}})";
  EXPECT_EQ(resolve(json).schedule.peak, 3e-3);
  EXPECT_EQ(resolve(json, {{"learning_rate", "5e-3"}}).schedule.peak, 5e-3);
}

TEST(Config, a_model_with_few_positions_has_shorter_sequences_by_default) {
  const auto sequence = [](const std::string& model) {
    ConfigDraft draft;
    draft.set_flag("model", model);
    return draft.resolve({}).model_options.sequence;
  };
  EXPECT_EQ(sequence("gpt2-nano"), 128);
  EXPECT_EQ(sequence("gpt2-70m"), 256);
}

TEST(Config, empty_and_undisplayable_texts_are_refused) {
  EXPECT_THAT(refusal("", {{"data", ""}}), AllOf(HasSubstr("--data"), HasSubstr("empty")));
  EXPECT_THAT(refusal("", {{"data", "\xff"}}), AllOf(HasSubstr("--data"), HasSubstr("UTF-8")));
  EXPECT_THAT(refusal("", {{"dtype", "\xff"}}), HasSubstr("--dtype"));
}

TEST(Config, broken_files_are_refused_by_name) {
  ConfigDraft draft;
  EXPECT_THROW(draft.read_file("/nonexistent.json"), UsageError);
  EXPECT_THROW(draft.read_file("/tmp"), UsageError);
  EXPECT_THAT(refusal("{"), HasSubstr("run.json, line 1, column 2"));
  EXPECT_THAT(refusal("[]"), HasSubstr("one JSON object"));
  EXPECT_THAT(refusal(R"({"zero_optimization": true})"), HasSubstr("section"));
}

TEST(Config, a_sequence_longer_than_the_model_has_positions_is_refused) {
  EXPECT_THAT(refusal("", {{"sequence_length", "100000"}}), HasSubstr("positions"));
}

TEST(Config, an_unknown_model_names_the_nearest) {
  EXPECT_THAT(refusal("", {{"model", "gpt2-min"}}), HasSubstr("gpt2-mini"));
}

TEST(Config, tables_name_each_key_once_and_every_setting_has_a_meaning) {
  std::set<std::string> seen;
  for (const KnownKey& key : deepspeed_keys()) {
    EXPECT_TRUE(seen.insert(key.path).second) << key.path;
    EXPECT_EQ(key.meaning.empty(), key.key_class == KeyClass::hint) << key.path;
  }
  std::set<std::string> names;
  for (const SettingInfo& info : setting_infos()) {
    EXPECT_TRUE(names.insert(info.name).second) << info.name;
    EXPECT_FALSE(info.meaning.empty()) << info.name;
    EXPECT_LT(info.meaning.size(), 90u) << info.name;
  }
}

}  // namespace
}  // namespace headrace

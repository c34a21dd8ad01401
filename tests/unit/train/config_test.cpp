#include "headrace/config.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "headrace/errors.h"

namespace headrace {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
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
  EXPECT_EQ(options.engine.adam.beta1, 0.8);
  EXPECT_EQ(options.engine.adam.beta2, 0.99);
  EXPECT_EQ(options.engine.adam.epsilon, 1e-6);
  EXPECT_EQ(options.engine.adam.weight_decay, 0.01);
  EXPECT_EQ(options.engine.stage, 3);
  EXPECT_EQ(options.engine.optimizer_tier, Tier::nvme);
  EXPECT_EQ(options.engine.parameter_tier, Tier::host);
  EXPECT_EQ(options.engine.swap_directory, "/swap/rank-00000");
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
  EXPECT_THAT(refusal(R"({"fp16": {"enabled": true}})"), AllOf(HasSubstr("fp16.enabled"), HasSubstr("bf16")));
  EXPECT_THAT(refusal(R"({"fp16": {"enabled": false}})"), IsEmpty());
  EXPECT_THAT(refusal(R"({"zero_optimization": {"zero_quantized_gradients": true}})"),
              HasSubstr("quantised"));
  EXPECT_THAT(refusal(R"({"zero_optimization": {"offload_optimizer": {"ratio": 0.5}}})"), HasSubstr("ratio"));
  EXPECT_THAT(refusal(R"({"zero_optimization": {"offload_optimizer": {"ratio": 1}}})"), IsEmpty());
  EXPECT_THAT(refusal(R"({"optimizer": {"type": "Lion"}})"), AllOf(HasSubstr("Lion"), HasSubstr("AdamW")));
  EXPECT_THAT(refusal(R"({"scheduler": {"type": "OneCycle"}})"), HasSubstr("WarmupCosineLR"));
  EXPECT_THAT(refusal("", {{"resume", "latest"}}), HasSubstr("swap"));
  EXPECT_THAT(refusal("", {{"dtype", "fp16"}}), HasSubstr("bf16"));
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
                    "headrace.timeout", "headrace.beta1"));

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

TEST(Config, broken_files_are_refused_by_name) {
  ConfigDraft draft;
  EXPECT_THROW(draft.read_file("/nonexistent.json"), UsageError);
  EXPECT_THROW(draft.read_file("/tmp"), UsageError);
  EXPECT_THAT(refusal("{"), HasSubstr("run.json is not valid JSON"));
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

// What a configuration file and flags mean together, and what is said of keys that are not used.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "headrace/errors.h"
#include "tests/unit/train/config_of.h"

namespace headrace {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

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

TEST(Config, a_key_that_is_not_available_is_an_error_unless_it_asks_for_nothing) {
  EXPECT_THAT(refusal(R"({"zero_optimization": {"zero_quantized_gradients": true}})"),
              HasSubstr("quantised"));
  EXPECT_THAT(refusal(R"({"zero_optimization": {"offload_optimizer": {"ratio": 0.5}}})"), HasSubstr("ratio"));
  EXPECT_THAT(refusal(R"({"zero_optimization": {"offload_optimizer": {"ratio": 1}}})"), IsEmpty());
  EXPECT_THAT(refusal(R"({"optimizer": {"type": "Muon"}})"), AllOf(HasSubstr("Muon"), HasSubstr("AdamW")));
  EXPECT_THAT(refusal(R"({"scheduler": {"type": "OneCycle"}})"), HasSubstr("WarmupCosineLR"));
  EXPECT_THAT(refusal("", {{"resume", "latest"}}), HasSubstr("--checkpoint-dir"));
}

TEST(Config, hints_are_listed_in_one_note) {
  const auto options = resolve(
      R"({"aio": {"block_size": 1}, "zero_optimization": {"overlap_comm": true}, "wandb": {"enabled": true}})");
  ASSERT_EQ(options.notes.size(), 1u);
  EXPECT_THAT(options.notes[0],
              AllOf(HasSubstr("aio.block_size"), HasSubstr("overlap_comm"), HasSubstr("wandb")));
}

TEST(Config, two_keys_for_one_thing_are_a_contradiction) {
  EXPECT_THAT(refusal(R"({"train_micro_batch_size_per_gpu": 4, "headrace": {"batch_size": 8}})"),
              AllOf(HasSubstr("train_micro_batch_size_per_gpu"), HasSubstr("headrace.batch_size")));
}

TEST(Config, the_printed_configuration_is_a_configuration_with_the_same_effect) {
  for (const std::string& json :
       {std::string(R"({"train_batch_size": 24, "zero_optimization": {"stage": 3, "sub_group_size": 8192,
         "offload_param": {"device": "cpu"}, "offload_optimizer": {"device": "nvme", "nvme_path": "/a b/é"}}})"),
        std::string(R"({"scheduler": {"type": "WarmupDecayLR", "params": {"total_num_steps": 9}}})"),
        std::string(
            R"({"optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}, "scheduler": {"type": "WarmupLR",
         "params": {"warmup_max_lr": 1e-2}}})")}) {
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

TEST(Config, hints_without_effect_are_one_note_with_what_they_need) {
  const auto options =
      resolve(R"({"aio": {"block_size": 1}, "zero_optimization": {"sub_group_size": 4096}})",
              {{"swap_buffers", "4"}, {"prefetch_units", "2"}, {"link_bandwidth", "8GB/s"}, {"io", "auto"}});
  ASSERT_EQ(options.notes.size(), 1u);
  for (const char* name : {"aio.block_size", "--swap-buffers", "--prefetch-units", "--link-bandwidth", "--io",
                           "needs optimizer states on NVMe", "need something on NVMe", "needs stage 3"})
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

TEST(Config, a_refusal_names_the_key_of_the_file_or_the_flag_whichever_gave_the_value) {
  const auto with = [](const std::string& keys) { return refusal(R"({"headrace": {)" + keys + "}}"); };
  EXPECT_THAT(with(R"("offload_optimizer": "nvme", "swap_path": "/a", "swap_parity": 1)"),
              AllOf(HasSubstr("\"headrace.swap_parity\" 1"), Not(HasSubstr("--swap-parity"))));
  EXPECT_THAT(with(R"("sequence_length": 100000)"), HasSubstr("\"headrace.sequence_length\" 100000"));
  EXPECT_THAT(with(R"("swap_path": "/a")"), HasSubstr("\"headrace.swap_path\" /a would not be used"));
  EXPECT_THAT(with(R"("resume": "swap")"), HasSubstr("\"headrace.resume\" swap needs"));
  EXPECT_THAT(refusal("", {{"sequence_length", "100000"}}), HasSubstr("--sequence-length 100000"));
}

TEST(Config, broken_files_are_refused_by_name) {
  ConfigDraft draft;
  EXPECT_THROW(draft.read_file("/nonexistent.json"), UsageError);
  EXPECT_THROW(draft.read_file("/tmp"), UsageError);
  EXPECT_THAT(refusal("{"), HasSubstr("run.json, line 1, column 2"));
  EXPECT_THAT(refusal("[]"), HasSubstr("one JSON object"));
  EXPECT_THAT(refusal(R"({"zero_optimization": true})"), HasSubstr("section"));
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

// Values of keys: how they are read, and which are refused.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "headrace/errors.h"
#include "tests/unit/train/config_of.h"

namespace headrace {
namespace {

using testing::AllOf;
using testing::HasSubstr;

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

TEST(Config, hyper_parameters_that_fp32_cannot_hold_are_refused_by_what_the_user_wrote) {
  for (const auto& [name, flag] : {std::pair{"learning_rate", "--learning-rate"},
                                   {"epsilon", "--epsilon"},
                                   {"weight_decay", "--weight-decay"}})
    EXPECT_THAT(refusal("", {{name, "1e300"}}),
                AllOf(HasSubstr(flag), HasSubstr("1e300"), HasSubstr("fp32")));
  EXPECT_THAT(refusal("", {{"epsilon", "1e-46"}}), AllOf(HasSubstr("--epsilon"), HasSubstr("fp32")));
  EXPECT_EQ(refusal("", {{"epsilon", "0"}, {"weight_decay", "0"}}), "");
  EXPECT_THAT(refusal("", {{"optimizer", "sgd"}, {"momentum", "1e300"}}), HasSubstr("--momentum"));
  EXPECT_THAT(refusal(R"({"optimizer": {"type": "AdamW", "params": {"eps": 1e300}}})"),
              HasSubstr("optimizer.params.eps"));
  EXPECT_THAT(refusal(R"({"scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": 1e300}}})"),
              HasSubstr("scheduler.params.warmup_max_lr"));
  for (const char* const key : {"learning_rate_factor", "eps", "weight_decay"})
    EXPECT_THAT(refusal(fmt::format(
                    R"({{"headrace": {{"parameter_groups": [{{"parameters": "*", "{}": 1e300}}]}}}})", key)),
                HasSubstr(fmt::format("headrace.parameter_groups\", group 1, \"{}\": 1e+300", key)));
}

// Adam's first update divides the rate by 1 - beta1.
TEST(Config, a_rate_whose_first_update_fp32_cannot_hold_is_refused) {
  EXPECT_THAT(refusal("", {{"learning_rate", "1e38"}}),
              AllOf(HasSubstr("--learning-rate"), HasSubstr("1e+38")));
  EXPECT_EQ(refusal("", {{"learning_rate", "1e38"}, {"optimizer", "sgd"}}), "");
  EXPECT_THAT(refusal("", {{"learning_rate", "1e20"}, {"weight_decay", "1e20"}}),
              AllOf(HasSubstr("--learning-rate"), HasSubstr("weight decay")));
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

TEST(Config, a_sequence_longer_than_the_model_has_positions_is_refused) {
  EXPECT_THAT(refusal("", {{"sequence_length", "100000"}}), HasSubstr("positions"));
}

TEST(Config, an_unknown_model_names_the_nearest) {
  EXPECT_THAT(refusal("", {{"model", "gpt2-min"}}), HasSubstr("gpt2-mini"));
}

}  // namespace
}  // namespace headrace

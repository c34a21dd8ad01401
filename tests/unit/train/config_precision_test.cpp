// The model's type and the loss scale in a configuration.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headrace/errors.h"
#include "tests/unit/train/config_of.h"

namespace headrace {
namespace {

using testing::AllOf;
using testing::HasSubstr;

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

TEST(Config, a_section_of_a_type_that_is_switched_off_is_noted_and_not_used) {
  const char* const keys = R"("bf16_master_weights_and_grads": true, "bf16_optimizer_states": true,
                              "check_grad_overflow": false)";
  for (const std::string& others : {std::string(R"("bf16": {"enabled": false, )"),
                                    std::string(R"("fp16": {"enabled": true}, "bf16": {)")}) {
    const ResolvedOptions options = resolve(fmt::format("{{{}{}}}}}", others, keys));
    EXPECT_EQ(options.engine.master_dtype, MasterDType::f32);
    EXPECT_EQ(options.engine.moment_dtype, MomentDType::f32);
    ASSERT_EQ(options.notes.size(), 1u);
    for (const char* const key : {"bf16_master_weights_and_grads", "bf16_optimizer_states",
                                  "check_grad_overflow", "not used", "\"enabled\""})
      EXPECT_THAT(options.notes[0], HasSubstr(key));
  }
  EXPECT_EQ(resolve(R"({"bf16": {"enabled": false, "bf16_optimizer_states": true},
                        "headrace": {"moments": "int8"}})")
                .engine.moment_dtype,
            MomentDType::int8);
  for (const char* const off : {R"("enabled": false)", R"("enabled": null)", R"("auto_cast": false)"}) {
    const ResolvedOptions fp16 = resolve(
        fmt::format(R"({{"fp16": {{"loss_scale_window": 5, "fp16_master_weights_and_grads": true, {}}}}})",
                    off),
        {{"dtype", "fp16"}});
    EXPECT_EQ(fp16.engine.loss_scale.window, 1000u) << off;
    ASSERT_EQ(fp16.notes.size(), 1u) << off;
    EXPECT_THAT(fp16.notes[0], HasSubstr("fp16.loss_scale_window")) << off;
  }
  EXPECT_THAT(refusal(R"({"bf16": {"enabled": false, "bf16_optimizer_states": "yes"}})"),
              HasSubstr("bf16.bf16_optimizer_states"));
  EXPECT_EQ(resolve(R"({"bf16": {"bf16_optimizer_states": true, "enabled": true}})").engine.moment_dtype,
            MomentDType::bf16);
}

TEST(Config, keys_of_a_type_that_the_run_does_not_have_are_noted_as_such_not_as_hints) {
  const ResolvedOptions options =
      resolve(R"({"fp16": {"enabled": "auto", "initial_scale_power": 3}})", {{"dtype", "bf16"}});
  EXPECT_THAT(options.notes,
              testing::Contains(AllOf(HasSubstr("fp16.initial_scale_power"), HasSubstr("not used"))));
  for (const std::string& note : options.notes) EXPECT_THAT(note, testing::Not(HasSubstr("hint")));
}

TEST(Config, a_section_of_a_type_without_enabled_is_off_as_in_deepspeed) {
  const std::string keys = R"("bf16_optimizer_states": true, "bf16_master_weights_and_grads": true)";
  for (const std::string& section :
       {fmt::format(R"("bf16": {{{}}})", keys), fmt::format(R"("bfloat16": {{"enabled": null, {}}})", keys),
        fmt::format(R"("bf16": {{"enabled": false, {}}})", keys)}) {
    const ResolvedOptions options = resolve(fmt::format("{{{}}}", section));
    EXPECT_EQ(options.engine.dtype, DType::f32) << section;
    EXPECT_EQ(options.engine.state_format(), resolve("").engine.state_format()) << section;
    ASSERT_EQ(options.notes.size(), 1u) << section;
    EXPECT_THAT(options.notes[0],
                HasSubstr("not \"enabled\": bf16.bf16_optimizer_states, bf16.bf16_master_weights_and_grads"));
  }
  EXPECT_EQ(resolve(R"({"bf16": {}})").engine.dtype, DType::f32);
  EXPECT_EQ(resolve(R"({"bf16": null})").engine.dtype, DType::bf16);
  EXPECT_EQ(resolve(R"({"bf16": {}, "headrace": {"dtype": "bf16"}})").engine.dtype, DType::bf16);
  EXPECT_EQ(resolve(R"({"bf16": {}})", {{"dtype", "bf16"}}).engine.dtype, DType::bf16);
  const ResolvedOptions fp16 = resolve(R"({"fp16": {"loss_scale": 128}})");
  EXPECT_EQ(fp16.engine.dtype, DType::bf16);
  ASSERT_EQ(fp16.notes.size(), 1u);
  EXPECT_THAT(fp16.notes[0], HasSubstr("not \"enabled\": fp16.loss_scale"));
}

TEST(Config, a_section_whose_enabled_is_auto_is_used_by_models_of_its_type) {
  const char* const file = R"({"bf16": {"enabled": "auto", "bf16_optimizer_states": true},
                               "fp16": {"enabled": "auto", "loss_scale_window": 5}})";
  EXPECT_EQ(resolve(file).engine.dtype, DType::bf16);
  EXPECT_EQ(resolve(file).engine.moment_dtype, MomentDType::bf16);
  EXPECT_EQ(resolve(file, {{"dtype", "fp16"}}).engine.loss_scale.window, 5u);
}

// FIELD-CASES N5.
TEST(Config, a_loss_scale_without_meaning_is_refused_by_its_key) {
  for (const char* const key : {"loss_scale_window", "hysteresis", "min_loss_scale"})
    EXPECT_THAT(refusal(fmt::format(R"({{"fp16": {{"enabled": true, "{}": 0}}}})", key)), HasSubstr(key));
  for (const char* const key : {"loss_scale", "initial_scale_power", "min_loss_scale"})
    EXPECT_THAT(refusal(fmt::format(R"({{"fp16": {{"enabled": true, "{}": -1}}}})", key)), HasSubstr(key));
  EXPECT_THAT(refusal(R"({"fp16": {"enabled": true, "initial_scale_power": 2, "min_loss_scale": 8}})"),
              AllOf(HasSubstr("\"fp16.min_loss_scale\" 8"), HasSubstr("above the first"),
                    HasSubstr("\"fp16.initial_scale_power\"")));
  EXPECT_THAT(refusal("", {{"dtype", "fp16"}, {"min_loss_scale", "1e9"}}),
              AllOf(HasSubstr("--min-loss-scale 1e+09"), HasSubstr("--initial-scale-power")));
  for (const auto& [name, flag] :
       {std::pair{"loss_scale", "--loss-scale"}, {"min_loss_scale", "--min-loss-scale"}})
    EXPECT_THAT(refusal("", {{"dtype", "fp16"}, {name, "1e-50"}}),
                AllOf(HasSubstr(flag), HasSubstr("1e-50")));
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

}  // namespace
}  // namespace headrace

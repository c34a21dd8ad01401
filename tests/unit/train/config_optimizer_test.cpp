// The optimizer, its hyper-parameters and the types of its states in a configuration.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headrace/errors.h"
#include "tests/unit/train/config_of.h"

namespace headrace {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(Config, each_optimizer_has_the_defaults_of_its_origin_and_adamw_those_of_language_models) {
  struct Expected {
    const char* name;
    OptimizerKind kind;
    double rate, beta1, beta2, epsilon, decay;
  };
  using enum OptimizerKind;
  for (const Expected& e : {Expected{"adamw", adam, 3e-4, 0.9, 0.95, 1e-8, 0.1},
                            {"adam", adam, 1e-3, 0.9, 0.999, 1e-8, 0},
                            {"adagrad", adagrad, 1e-2, 0, 0, 1e-10, 0},
                            {"lion", lion, 1e-4, 0.9, 0.99, 0, 0},
                            {"sgd", sgd, 1e-3, 0, 0, 0, 0}}) {
    const ResolvedOptions options = resolve("", {{"optimizer", e.name}});
    const OptimizerArguments& optimizer = options.engine.optimizer;
    EXPECT_EQ(optimizer.kind, e.kind) << e.name;
    EXPECT_EQ(optimizer.decoupled, std::string_view(e.name) != "adam") << e.name;
    EXPECT_EQ(options.schedule.peak, e.rate) << e.name;
    EXPECT_EQ(optimizer.beta1, e.beta1) << e.name;
    EXPECT_EQ(optimizer.beta2, e.beta2) << e.name;
    EXPECT_EQ(optimizer.epsilon, e.epsilon) << e.name;
    EXPECT_EQ(optimizer.weight_decay, e.decay) << e.name;
    EXPECT_EQ(resolve(options.effective_config).effective_config, options.effective_config) << e.name;
  }
  EXPECT_EQ(resolve("").engine.optimizer.beta2, 0.95);
}

TEST(Config, an_optimizer_that_a_file_names_by_type_keeps_its_rate_unless_a_schedule_is_given) {
  using enum ScheduleOptions::Decay;
  const std::string file = R"({"optimizer": {"type": "AdamW"}})";
  const ResolvedOptions kept = resolve(file);
  EXPECT_EQ(kept.schedule.decay, constant);
  EXPECT_EQ(learning_rate(kept.schedule, kept.schedule.total_steps), 1e-3);
  EXPECT_EQ(resolve(kept.effective_config).schedule.decay, constant);
  EXPECT_EQ(resolve(file, {{"schedule", "cosine"}}).schedule.decay, cosine);
  EXPECT_EQ(resolve(file, {{"optimizer", "adamw"}}).schedule.decay, cosine);
  EXPECT_EQ(
      resolve(R"({"optimizer": {"type": "AdamW"}, "scheduler": {"type": "WarmupCosineLR"}})").schedule.decay,
      cosine);
}

TEST(Config, an_optimizer_that_a_file_names_by_type_has_deepspeeds_defaults_for_what_is_left_out) {
  struct Expected {
    const char* optimizer;
    double rate, beta1, beta2, epsilon, decay;
  };
  for (const Expected& e :
       {Expected{R"("type": "AdamW")", 1e-3, 0.9, 0.999, 1e-8, 0},
        {R"("type": "Adam")", 1e-3, 0.9, 0.999, 1e-8, 0},
        {R"("type": "Adam", "params": {"adam_w_mode": false})", 1e-3, 0.9, 0.999, 1e-8, 0},
        {R"("params": {"torch_adam": true}, "type": "AdamW")", 1e-3, 0.9, 0.999, 1e-8, 0.01},
        {R"("type": "Adam", "params": {"torch_adam": true})", 1e-3, 0.9, 0.999, 1e-8, 0.01},
        {R"("type": "Adam", "params": {"torch_adam": true, "adam_w_mode": false})", 1e-3, 0.9, 0.999, 1e-8,
         0},
        {R"("type": "Lion")", 1e-3, 0.9, 0.999, 0, 0},
        {R"("type": "Adagrad")", 1e-2, 0, 0, 1e-10, 0},
        {R"("type": "SGD")", 1e-3, 0, 0, 0, 0},
        {R"("type": "AdamW", "params": {"lr": "auto", "betas": "auto", "weight_decay": "auto"})", 1e-3, 0.9,
         0.999, 1e-8, 0},
        {R"("type": "AdamW", "params": {"lr": 2e-5, "weight_decay": 0.3})", 2e-5, 0.9, 0.999, 1e-8, 0.3},
        {R"("type": "auto")", 3e-4, 0.9, 0.95, 1e-8, 0.1},
        {R"("params": {"lr": 2e-5})", 2e-5, 0.9, 0.95, 1e-8, 0.1}}) {
    const ResolvedOptions options = resolve(fmt::format(R"({{"optimizer": {{{}}}}})", e.optimizer));
    const ResolvedOptions again = resolve(options.effective_config);
    for (const ResolvedOptions* const one : {&options, &again}) {
      EXPECT_EQ(one->schedule.peak, e.rate) << e.optimizer;
      EXPECT_EQ(one->engine.optimizer.beta1, e.beta1) << e.optimizer;
      EXPECT_EQ(one->engine.optimizer.beta2, e.beta2) << e.optimizer;
      EXPECT_EQ(one->engine.optimizer.epsilon, e.epsilon) << e.optimizer;
      EXPECT_EQ(one->engine.optimizer.weight_decay, e.decay) << e.optimizer;
    }
  }
  const ResolvedOptions flag = resolve(R"({"optimizer": {"type": "Lion"}})", {{"optimizer", "lion"}});
  EXPECT_EQ(flag.schedule.peak, 1e-4);
  EXPECT_EQ(flag.engine.optimizer.beta2, 0.99);
}

TEST(Config, adam_w_mode_beside_an_optimizer_may_agree_with_it_and_not_contradict_it) {
  const auto file = [](bool mode, const std::string& optimizer) {
    return fmt::format(
        R"({{"optimizer": {{"params": {{"adam_w_mode": {}}}}}, "headrace": {{"optimizer": "{}"}}}})", mode,
        optimizer);
  };
  EXPECT_TRUE(resolve(file(true, "adamw")).engine.optimizer.decoupled);
  EXPECT_FALSE(resolve(file(false, "adam")).engine.optimizer.decoupled);
  EXPECT_THAT(refusal(file(false, "adamw")),
              AllOf(HasSubstr("optimizer.params.adam_w_mode"), HasSubstr("headrace.optimizer")));
  EXPECT_THAT(refusal(file(true, "adam")), HasSubstr("contradicts"));
  EXPECT_THAT(refusal(file(true, "lion")), HasSubstr("Adam and AdamW alone"));
  EXPECT_FALSE(resolve(R"({"optimizer": {"params": {"adam_w_mode": true}}})", {{"optimizer", "adam"}})
                   .engine.optimizer.decoupled);
}

TEST(Config, a_value_that_says_what_is_so_anyway_is_accepted_with_any_optimizer) {
  const auto with = [](const std::string& type, const std::string& params) {
    return refusal(fmt::format(R"({{"optimizer": {{"type": "{}", "params": {{{}}}}}}})", type, params));
  };
  for (const char* const type : {"AdamW", "Adam", "Lion", "Adagrad", "SGD"})
    EXPECT_EQ(
        with(type, R"("amsgrad": false, "momentum": 0, "dampening": 0.0, "nesterov": false, "lr_decay": 0,
                            "maximize": false, "initial_accumulator_value": 0, "bias_correction": true,
                            "torch_adam": false, "fp32_optimizer_states": true)"),
        "")
        << type;
  for (const char* const asked : {R"("amsgrad": true)", R"("lr_decay": 0.1)"})
    EXPECT_THAT(with("SGD", asked), HasSubstr("would have no effect")) << asked;
  for (const char* const asked : {R"("momentum": 0.9)", R"("nesterov": true)", R"("dampening": 0.1)"})
    EXPECT_THAT(with("AdamW", asked), HasSubstr("would have no effect")) << asked;
  EXPECT_EQ(refusal("", {{"optimizer", "sgd"}, {"moments", "fp32"}}), "");
  EXPECT_EQ(refusal(R"({"bf16": {"enabled": true, "bf16_optimizer_states": false},
                        "optimizer": {"type": "SGD"}})"),
            "");
  EXPECT_EQ(refusal("", {{"swap_parity", "0"}, {"eval_every", "0"}, {"consecutive_hysteresis", "false"}}),
            "");
}

TEST(Config, deepspeeds_optimizers_and_their_parameters_are_those_that_they_name) {
  const auto optimizer = [](const std::string& type, const std::string& params) {
    return resolve(fmt::format(R"({{"optimizer": {{"type": "{}", "params": {{{}}}}}}})", type, params))
        .engine.optimizer;
  };
  EXPECT_TRUE(optimizer("Adam", "").decoupled);
  EXPECT_FALSE(optimizer("Adam", R"("adam_w_mode": false)").decoupled);
  EXPECT_EQ(optimizer("Adam", R"("adam_w_mode": false)").beta2, 0.999);
  EXPECT_FALSE(resolve(R"({"optimizer": {"params": {"adam_w_mode": false}}})").engine.optimizer.decoupled);
  EXPECT_TRUE(optimizer("AdamW", R"("amsgrad": true)").amsgrad);
  EXPECT_EQ(optimizer("Lion", R"("betas": [0.8, 0.98])").beta2, 0.98);
  EXPECT_EQ(optimizer("Adagrad", R"("lr_decay": 0.25)").rate_decay, 0.25);
  const OptimizerArguments sgd =
      optimizer("SGD", R"("momentum": 0.8, "nesterov": true, "maximize": true, "weight_decay": 0.01)");
  EXPECT_EQ(sgd.kind, OptimizerKind::sgd);
  EXPECT_EQ(sgd.momentum, 0.8);
  EXPECT_TRUE(sgd.nesterov);
  EXPECT_TRUE(sgd.maximize);
  EXPECT_EQ(sgd.weight_decay, 0.01);
  EXPECT_EQ(optimizer("SGD", R"("momentum": 0.8, "dampening": 0.5)").dampening, 0.5);
  EXPECT_THAT(refusal(R"({"optimizer": {"type": "AdamW", "params": {"adam_w_mode": false}}})"),
              HasSubstr("the type Adam"));
  EXPECT_THAT(refusal(R"({"optimizer": {"type": "SGD", "params": {"adam_w_mode": true}}})"),
              HasSubstr("adam_w_mode"));
}

TEST(Config, a_type_that_is_not_available_is_refused_by_its_name_wherever_it_stands) {
  const auto both = [](const std::string& section, const std::string& type, const std::string& params) {
    const std::string first = fmt::format(R"({{"{}": {{"type": "{}", "params": {{{}}}}}}})", section, type,
                                          params),
                      last = fmt::format(R"({{"{}": {{"params": {{{}}}, "type": "{}"}}}})", section, params,
                                         type);
    EXPECT_EQ(refusal(last), refusal(first)) << type;
    return refusal(last);
  };
  EXPECT_THAT(both("optimizer", "OneBitAdam", R"("lr": 1e-3, "freeze_step": 400, "cuda_aware": false)"),
              HasSubstr("\"optimizer.type\": the optimizer \"OneBitAdam\" is not available"));
  EXPECT_THAT(both("scheduler", "OneCycle", R"("cycle_min_lr": 1e-4)"),
              HasSubstr("\"scheduler.type\": the scheduler \"OneCycle\" is not available"));
  EXPECT_THAT(both("optimizer", "AdamW", R"("freeze_step": 400)"),
              HasSubstr("freeze_step\" is not a known key"));
}

TEST(Config, a_setting_of_another_optimizer_is_refused_with_what_it_needs) {
  const auto with = [](const std::string& optimizer, const std::string& setting, const std::string& value) {
    return refusal("", {{"optimizer", optimizer}, {setting, value}});
  };
  EXPECT_THAT(with("sgd", "beta2", "0.9"), AllOf(HasSubstr("--beta2"), HasSubstr("--optimizer adamw")));
  EXPECT_THAT(with("lion", "epsilon", "1e-8"), HasSubstr("adagrad"));
  EXPECT_THAT(with("lion", "amsgrad", "true"), HasSubstr("--optimizer adamw or adam"));
  EXPECT_THAT(with("adamw", "momentum", "0.9"), HasSubstr("--optimizer sgd"));
  EXPECT_THAT(with("sgd", "nesterov", "true"), HasSubstr("--momentum 0.9"));
  EXPECT_THAT(with("sgd", "dampening", "0.5"), HasSubstr("--momentum 0.9"));
  EXPECT_THAT(with("adam", "lr_decay", "0.5"), HasSubstr("--optimizer adagrad"));
  EXPECT_THAT(with("sgd", "moments", "int8"), HasSubstr("--momentum"));
  EXPECT_THAT(
      refusal("", {{"optimizer", "sgd"}, {"momentum", "0.9"}, {"nesterov", "true"}, {"dampening", "0.5"}}),
      AllOf(HasSubstr("--nesterov and --dampening 0.5"), HasSubstr("Nesterov")));
  EXPECT_THAT(refusal("", {{"optimizer", "adm"}}), HasSubstr("Did you mean"));
}

TEST(Config, types_of_master_and_moments_are_set_by_flags_and_by_deepspeeds_keys) {
  const ResolvedOptions flags = resolve("", {{"master_dtype", "bf16"}, {"moments", "int8"}});
  EXPECT_EQ(flags.engine.master_dtype, MasterDType::bf16);
  EXPECT_EQ(flags.engine.moment_dtype, MomentDType::int8);
  const ResolvedOptions again = resolve(flags.effective_config);
  EXPECT_EQ(again.engine.state_format(), flags.engine.state_format());
  const ResolvedOptions file = resolve(
      R"({"bf16": {"enabled": true, "bf16_master_weights_and_grads": true, "bf16_optimizer_states": true}})");
  EXPECT_EQ(file.engine.master_dtype, MasterDType::bf16);
  EXPECT_EQ(file.engine.moment_dtype, MomentDType::bf16);
  EXPECT_EQ(resolve(R"({"bf16": {"enabled": true, "bf16_optimizer_states": false}})").engine.moment_dtype,
            MomentDType::f32);
  EXPECT_THAT(refusal("", {{"master_dtype", "bf16"}, {"dtype", "fp32"}}), HasSubstr("--dtype bf16"));
  EXPECT_THAT(refusal("", {{"master_dtype", "none"}, {"offload_optimizer", "cpu"}}),
              HasSubstr("--offload-parameters"));
  EXPECT_THAT(refusal("", {{"moments", "int4"}}), HasSubstr("fp32, bf16, int8"));
}

TEST(Config, a_flag_goes_before_the_files_optimizer_and_notes_what_was_of_that_one_alone) {
  const std::string adamw = R"({"optimizer": {"type": "AdamW", "params": {
      "lr": 2e-5, "betas": [0.8, 0.99], "eps": 1e-7, "amsgrad": true, "nesterov": false, "torch_adam": true}}})";
  const ResolvedOptions lion = resolve(adamw, {{"optimizer", "lion"}});
  EXPECT_EQ(lion.engine.optimizer.kind, OptimizerKind::lion);
  EXPECT_EQ(lion.engine.optimizer.beta1, 0.8);
  EXPECT_EQ(lion.schedule.peak, 2e-5);
  ASSERT_EQ(lion.notes.size(), 1u);
  EXPECT_THAT(lion.notes[0], AllOf(HasSubstr("not used"), HasSubstr("optimizer.params.eps (needs"),
                                   HasSubstr("optimizer.params.amsgrad (needs")));
  EXPECT_THAT(lion.notes[0], testing::Not(testing::AnyOf(HasSubstr("hint"), HasSubstr("nesterov"))));
  const ResolvedOptions again = resolve(lion.effective_config);
  EXPECT_EQ(again.effective_config, lion.effective_config);
  const std::string sgd = R"({"optimizer": {"type": "SGD", "params": {"momentum": 0.9, "nesterov": true}}})";
  EXPECT_EQ(resolve(sgd, {{"optimizer", "adamw"}}).engine.optimizer.momentum, 0);
  EXPECT_EQ(resolve(sgd, {{"optimizer", "sgd"}}).engine.optimizer.momentum, 0.9);
  EXPECT_THAT(refusal(adamw, {{"optimizer", "lion"}, {"epsilon", "1e-8"}}), HasSubstr("--epsilon"));
  EXPECT_THAT(refusal(R"({"optimizer": {"type": "Lion", "params": {"eps": 1e-8}}})"),
              HasSubstr("optimizer.params.eps would have no effect"));
}

TEST(Config, weight_decay_of_deepspeeds_key_is_noted_to_leave_out_norms_and_biases) {
  const auto with = [](const char* decay, const Flags& flags = {}) {
    return resolve(
        fmt::format(R"({{"optimizer": {{"type": "AdamW", "params": {{"weight_decay": {}}}}}}})", decay),
        flags);
  };
  ASSERT_EQ(with("0.1").notes.size(), 1u);
  EXPECT_THAT(with("0.1").notes[0], AllOf(HasSubstr("optimizer.params.weight_decay"),
                                          HasSubstr("norms and biases"), HasSubstr("parameter group")));
  EXPECT_TRUE(with("0").notes.empty());
  EXPECT_TRUE(with("0.1", {{"weight_decay", "0.2"}}).notes.empty());
  EXPECT_TRUE(resolve(R"({"headrace": {"weight_decay": 0.1}})").notes.empty());
}

// FIELD-CASES N11.
TEST(Config, learning_rates_below_zero_and_not_numbers_are_refused_and_zero_is_not) {
  EXPECT_THAT(refusal("", {{"learning_rate", "-1e-3"}}), HasSubstr("--learning-rate"));
  EXPECT_THAT(refusal("", {{"learning_rate", "nan"}}), HasSubstr("--learning-rate"));
  EXPECT_THAT(refusal("", {{"learning_rate", "inf"}}), HasSubstr("--learning-rate"));
  EXPECT_EQ(resolve("", {{"learning_rate", "0"}, {"warmup_steps", "0"}}).schedule.peak, 0);
}

}  // namespace
}  // namespace headrace

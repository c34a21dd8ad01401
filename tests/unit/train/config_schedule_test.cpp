// The learning rate's schedule in a configuration.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headrace/errors.h"
#include "tests/unit/train/config_of.h"
#include "tests/unit/train/schedule_reference.h"

namespace headrace {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;

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

TEST(Config, deepspeeds_schedulers_give_the_optimizer_the_rates_that_deepspeed_gives) {
  for (const test::ScheduleFigures& figures : test::schedule_figures) {
    const ResolvedOptions options =
        resolve(fmt::format(R"({{"optimizer": {{"type": "AdamW", "params": {{"lr": {}}}}},
                                 "scheduler": {{"type": "{}", "params": {}}}}})",
                            test::schedule_reference_rate, figures.type, figures.params));
    const ResolvedOptions again = resolve(options.effective_config);
    for (std::size_t applied = 0; applied < figures.rates.size(); ++applied)
      for (const ResolvedOptions* const one : {&options, &again})
        EXPECT_NEAR(learning_rate(one->schedule, applied), figures.rates[applied], 1e-12)
            << figures.type << ' ' << figures.params << ", after " << applied << " updates";
  }
}

TEST(Config, the_optimizers_rate_is_noted_where_the_scheduler_has_a_peak_of_its_own) {
  const auto with = [](const std::string& type, const std::string& params, const Flags& flags = {}) {
    return resolve(fmt::format(R"({{"optimizer": {{"type": "AdamW", "params": {{"lr": 5e-4}}}},
                                   "scheduler": {{"type": "{}",
                                                  "params": {{"warmup_num_steps": 10{}}}}}}})",
                               type, params),
                   flags);
  };
  const ResolvedOptions left_out = with("WarmupDecayLR", "");
  EXPECT_EQ(left_out.schedule.peak, 1e-3);
  ASSERT_EQ(left_out.notes.size(), 1u);
  EXPECT_THAT(left_out.notes[0], AllOf(HasSubstr("\"optimizer.params.lr\" 0.0005 is not used"),
                                       HasSubstr("warmup_max_lr, 0.001 where it is left out")));
  EXPECT_EQ(with("WarmupDecayLR", R"(, "warmup_max_lr": 5e-4)").notes.size(), 0u);
  EXPECT_EQ(with("WarmupLR", R"(, "warmup_max_lr": 1e-2)").notes.size(), 1u);
  EXPECT_EQ(with("WarmupLR", "").notes.size(), 0u);
  EXPECT_EQ(with("WarmupCosineLR", "").notes.size(), 0u);
  const ResolvedOptions flag = with("WarmupDecayLR", "", {{"learning_rate", "5e-4"}});
  EXPECT_EQ(flag.schedule.peak, 5e-4);
  EXPECT_THAT(flag.notes, IsEmpty());
}

TEST(Config, a_scheduler_of_deepspeeds_without_a_warm_up_is_refused_as_there) {
  EXPECT_THAT(refusal(R"({"scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 0}}})"),
              AllOf(HasSubstr("\"scheduler.params.warmup_num_steps\" is 0"), HasSubstr("at least 1")));
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

}  // namespace
}  // namespace headrace

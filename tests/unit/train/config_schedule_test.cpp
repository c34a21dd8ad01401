// The learning rate's schedule in a configuration.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headrace/errors.h"
#include "tests/unit/train/config_of.h"

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

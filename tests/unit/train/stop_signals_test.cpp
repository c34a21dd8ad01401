#include "src/train/stop_signals.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <cstdio>

namespace headrace {
namespace {

TEST(StopSignals, while_a_run_prepares_one_signal_ends_it_and_says_that_nothing_was_replaced) {
  const auto prepare = [](int signal) {
    const StopSignals signals;
    ::raise(signal);
  };
  EXPECT_EXIT(prepare(SIGINT), testing::ExitedWithCode(130), "nothing was replaced");
  EXPECT_EXIT(prepare(SIGUSR1), testing::ExitedWithCode(130), "");
  EXPECT_EXIT(prepare(SIGTERM), testing::ExitedWithCode(143), "");
}

TEST(StopSignals, while_ranks_connect_a_signal_ends_the_run_when_they_have) {
  const auto connect = [](int signal) {
    StopSignals signals;
    signals.begin_connecting();
    ::raise(signal);
    std::fputs("still here, ", stderr);
    signals.end_connecting();
  };
  EXPECT_EXIT(connect(SIGINT), testing::ExitedWithCode(130), "still here, .*nothing was replaced");
  EXPECT_EXIT(connect(SIGUSR1), testing::ExitedWithCode(130), "still here, ");
  EXPECT_EXIT(connect(SIGTERM), testing::ExitedWithCode(143), "");
  StopSignals signals;
  signals.begin_connecting();
  signals.end_connecting();
  EXPECT_FALSE(signals.requested());
}

TEST(StopSignals, once_something_is_replaced_the_first_signal_asks_and_the_second_ends) {
  StopSignals signals;
  signals.begin_replacing();
  EXPECT_FALSE(signals.requested());
  testing::internal::CaptureStderr();
  ::raise(SIGINT);
  EXPECT_TRUE(signals.requested());
  EXPECT_NE(testing::internal::GetCapturedStderr().find("after the first step"), std::string::npos);
  EXPECT_EXIT(::raise(SIGINT), testing::ExitedWithCode(130), "");
}

TEST(StopSignals, a_step_is_only_named_once_there_is_one) {
  StopSignals signals;
  signals.begin_replacing();
  signals.begin_steps();
  testing::internal::CaptureStderr();
  ::raise(SIGINT);
  EXPECT_NE(testing::internal::GetCapturedStderr().find("stopping after this step"), std::string::npos);
}

}  // namespace
}  // namespace headrace

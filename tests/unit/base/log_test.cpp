#include "headrace/log.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

namespace headrace {
namespace {

class Log : public ::testing::Test {
 protected:
  ~Log() override {
    set_log_level(LogLevel::normal);
    set_log_rank(0);
  }

  // What `function` writes to stderr; stdout, which is for results, must stay empty.
  template <class Function>
  std::string stderr_of(const Function& function) {
    ::testing::internal::CaptureStdout();
    ::testing::internal::CaptureStderr();
    function();
    EXPECT_EQ(::testing::internal::GetCapturedStdout(), "");
    return ::testing::internal::GetCapturedStderr();
  }
};

TEST_F(Log, info_is_one_plain_line_on_stderr) {
  EXPECT_EQ(stderr_of([] { log_info("loss 2.5"); }), "loss 2.5\n");
}

TEST_F(Log, braces_in_a_message_are_text) {
  EXPECT_EQ(stderr_of([] { log_info("{} {0} }{"); }), "{} {0} }{\n");
}

TEST_F(Log, verbose_needs_its_level) {
  EXPECT_EQ(stderr_of([] { log_verbose("detail"); }), "");
  set_log_level(LogLevel::verbose);
  EXPECT_EQ(stderr_of([] { log_verbose("detail"); }), "detail\n");
}

TEST_F(Log, quiet_keeps_warnings_alone) {
  set_log_level(LogLevel::quiet);
  EXPECT_EQ(stderr_of([] { log_info("progress"), log_warning("careful"); }), "headrace: warning: careful\n");
}

TEST_F(Log, ranks_other_than_0_write_warnings_with_their_number) {
  set_log_rank(3);
  EXPECT_EQ(stderr_of([] { log_info("progress"), log_warning("careful"); }),
            "headrace: warning (rank 3): careful\n");
}

TEST_F(Log, repeated_condition_warns_once) {
  const std::string text = stderr_of([] {
    EXPECT_TRUE(warn_once("pageable", "memory cannot be pinned"));
    EXPECT_FALSE(warn_once("pageable", "memory cannot be pinned"));
    EXPECT_TRUE(warn_once("buffered", "no O_DIRECT"));
  });
  EXPECT_EQ(text, "headrace: warning: memory cannot be pinned\nheadrace: warning: no O_DIRECT\n");
}

TEST_F(Log, one_of_many_threads_warns) {
  int warned = 0;
  const std::string text = stderr_of([&] {
    std::vector<int> results(8);
    std::vector<std::thread> threads;
    for (int& result : results) threads.emplace_back([&result] { result = warn_once("race", "once"); });
    for (std::thread& thread : threads) thread.join();
    for (const int result : results) warned += result;
  });
  EXPECT_EQ(warned, 1);
  EXPECT_EQ(text, "headrace: warning: once\n");
}

}  // namespace
}  // namespace headrace

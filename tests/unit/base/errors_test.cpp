#include "headrace/errors.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace headrace {
namespace {

template <class Function>
std::string message_of(const Function& function) {
  try {
    function();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

TEST(IoErrors, name_operation_path_range_and_errno) {
  const IoError error("write", "/swap/extents.bin", 8192, 4096, ENOSPC);
  EXPECT_EQ(error.path(), "/swap/extents.bin");
  EXPECT_EQ(error.offset(), 8192u);
  EXPECT_EQ(error.length(), 4096u);
  EXPECT_EQ(error.code(), ENOSPC);
  const std::string message = error.what();
  for (const char* part : {"write", "/swap/extents.bin", "8192", "4096", "No space left on device"})
    EXPECT_TRUE(contains(message, part)) << part << " in: " << message;
}

TEST(IoErrors, of_a_call_that_moves_no_bytes_name_no_range) {
  EXPECT_EQ(std::string(IoError("open", "/swap/journal.bin", 0, 0, ENOENT).what()),
            "open of /swap/journal.bin failed: No such file or directory (errno 2)");
  EXPECT_TRUE(contains(IoError("truncate", "f", 4096, 0, EIO).what(), "f at offset 4096 failed"));
  EXPECT_TRUE(contains(IoError("read", "f", 0, 1, EIO).what(), "f at offset 0 (1 bytes) failed"));
}

TEST(IoErrors, of_a_kernel_that_could_not_take_a_request_say_that_it_was_tried_again) {
  const std::string message = IoError("write", "/swap/extents.bin", 0, 4096, EAGAIN).what();
  for (const char* part : {"temporarily unavailable", "tried again", "--io-depth"})
    EXPECT_TRUE(contains(message, part)) << part << " in: " << message;
}

TEST(IoErrors, say_what_to_do_where_the_errno_does_not) {
  const auto message = [](int code) {
    return std::string(IoError("write", "/swap/extents.bin", 0, 4096, code).what());
  };
  EXPECT_TRUE(contains(message(ENOSPC), "Free some space")) << message(ENOSPC);
  EXPECT_TRUE(contains(message(EDQUOT), "quota -s")) << message(EDQUOT);
  for (const char* part : {"ulimit -u", "pids.max", "forked"})
    EXPECT_TRUE(contains(message(ECANCELED), part)) << part << " in: " << message(ECANCELED);
  EXPECT_TRUE(message(EIO).ends_with("(errno 5)")) << message(EIO) << ": `inspect` adds advice of its own";
}

TEST(IoErrors, are_errors_of_status_1) {
  const IoError error("read", "f", 0, 1, EIO);
  EXPECT_NE(dynamic_cast<const Error*>(&error), nullptr);
  EXPECT_EQ(dynamic_cast<const UsageError*>(static_cast<const Error*>(&error)), nullptr);
}

TEST(Must, returns_what_a_call_returned) {
  EXPECT_EQ(HEADRACE_MUST(7, "count"), 7);
  EXPECT_EQ(HEADRACE_MUST(0, "count"), 0);
}

TEST(Must, failed_call_is_an_error_with_its_errno_and_place) {
  const std::string message =
      message_of([] { HEADRACE_MUST(::open("/no/such/file", O_RDONLY), "open swap file /no/such/file"); });
  for (const char* part :
       {"cannot open swap file /no/such/file", "No such file or directory", "errors_test.cpp:"})
    EXPECT_TRUE(contains(message, part)) << part << " in: " << message;
}

TEST(Check, holding_condition_evaluates_no_message) {
  int evaluated = 0;
  HEADRACE_CHECK(true, "{}", ++evaluated);
  EXPECT_EQ(evaluated, 0);
}

TEST(Check, broken_invariant_is_a_logic_error_that_says_where) {
  const auto broken = [] { HEADRACE_CHECK(1 + 1 == 3, "sum is {}", 2); };
  EXPECT_THROW(broken(), std::logic_error);
  const std::string message = message_of(broken);
  for (const char* part : {"1 + 1 == 3", "sum is 2", "errors_test.cpp", "bug"})
    EXPECT_TRUE(contains(message, part)) << part << " in: " << message;
}

TEST(EditDistance, counts_insertions_deletions_and_substitutions) {
  EXPECT_EQ(edit_distance("", ""), 0u);
  EXPECT_EQ(edit_distance("abc", ""), 3u);
  EXPECT_EQ(edit_distance("", "abc"), 3u);
  EXPECT_EQ(edit_distance("stage", "stage"), 0u);
  EXPECT_EQ(edit_distance("stage", "stages"), 1u);
  EXPECT_EQ(edit_distance("stage", "tage"), 1u);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
}

TEST(NearestName, is_the_one_with_fewest_edits) {
  const std::vector<std::string> flags = {"--stage", "--steps", "--swap-path", "--seed"};
  EXPECT_EQ(nearest_name("--stagge", flags), "--stage");
  EXPECT_EQ(nearest_name("--swap-pth", flags), "--swap-path");
  EXPECT_EQ(nearest_name("--step", flags), "--steps");
}

TEST(NearestName, is_the_first_of_equals) {
  const std::vector<std::string> names = {"cat", "car"};
  EXPECT_EQ(nearest_name("cab", names), "cat");
}

TEST(NearestName, is_empty_when_nothing_is_near) {
  const std::vector<std::string> flags = {"--stage", "--steps"};
  EXPECT_EQ(nearest_name("xyzzy", flags), "");
  EXPECT_EQ(nearest_name("x", flags), "");
  EXPECT_EQ(nearest_name("anything", std::vector<std::string>{}), "");
}

}  // namespace
}  // namespace headrace

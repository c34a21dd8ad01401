#include "src/train/run_identity.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "headrace/data.h"
#include "headrace/errors.h"
#include "headrace/train.h"
#include "support/temporary_folder.h"

namespace headrace {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string run_of(const std::string& schedule, double clip = 1, int seed = 0) {
  return fmt::format(R"({{"samples": {{"--seed": {}}}, "result": {{"learning rate": "{}", "--clip": {}}}}})",
                     seed, schedule, clip);
}

TEST(RunIdentity, a_run_that_only_goes_on_for_longer_is_not_one_with_other_settings) {
  const RunDifference longer =
      compare_runs(run_of("cosine 0.0003 to 3e-05 in 100 steps"),
                   run_of("cosine 0.0003 to 3e-05 in 200 steps"), "--resume swap", "/swap");
  EXPECT_TRUE(longer.longer_only);
  EXPECT_THAT(longer.text, AllOf(HasSubstr("in 200 steps"), HasSubstr("in 100 steps")));
}

std::string run_with(const std::string& result) {
  return fmt::format(R"({{"samples": {{}}, "result": {{"learning rate": "constant 1", {}}}}})", result);
}

TEST(RunIdentity, another_optimizer_is_named_as_its_flag_and_runs_of_before_are_understood) {
  for (const auto* const adamw : {R"("--optimizer": "adamw")", R"("AdamW": true)"}) {
    EXPECT_EQ(
        compare_runs(run_with(adamw), run_with(R"("--optimizer": "adamw")"), "--resume swap", "/swap").text,
        "");
    EXPECT_THAT(
        compare_runs(run_with(adamw), run_with(R"("--optimizer": "adam")"), "--resume swap", "/swap").text,
        HasSubstr("--optimizer adam (was adamw)"));
  }
  EXPECT_EQ(compare_runs(run_with(R"("AdamW": false)"), run_with(R"("--optimizer": "adam")"), "--resume swap",
                         "/swap")
                .text,
            "");
}

TEST(RunIdentity, whatever_else_changes_is_named) {
  const std::string stored = run_of("cosine 0.0003 to 3e-05 in 100 steps");
  for (const std::string& now :
       {run_of("cosine 0.0004 to 3e-05 in 200 steps"), run_of("linear 0.0003 to 3e-05 in 200 steps"),
        run_of("constant 0.0003"), run_of("cosine 0.0003 to 3e-05 in 200 steps", 2)}) {
    const RunDifference other = compare_runs(stored, now, "--resume swap", "/swap");
    EXPECT_FALSE(other.longer_only) << now;
    EXPECT_THAT(other.text, HasSubstr("other settings than before: learning rate")) << now;
  }
  EXPECT_EQ(compare_runs(stored, stored, "--resume swap", "/swap").text, "");
  EXPECT_THROW(compare_runs(stored, run_of("constant 0.0003", 1, 7), "--resume swap", "/swap"), UsageError);
}

TEST(RunIdentity, another_shape_of_the_model_is_refused_and_stores_of_before_are_taken_at_their_word) {
  const auto run_with = [](const std::string& model) {
    return R"({"samples": {}, "result": {"learning rate": "constant 0.1"})" + model + "}";
  };
  const std::string four = run_with(R"(, "model": {"heads": 4})"),
                    two = run_with(R"(, "model": {"heads": 2})");
  EXPECT_EQ(compare_runs(four, four, "--resume swap", "/swap").text, "");
  EXPECT_EQ(compare_runs(run_with(""), two, "--resume swap", "/swap").text, "");
  try {
    compare_runs(four, two, "--resume swap", "/swap");
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("of another model: heads 2 (was 4)"), HasSubstr("/swap")));
  }
}

// Switches are stored where they are on: what is missing is the default, on either side.
TEST(RunIdentity, what_only_one_of_the_two_has_is_compared_with_the_default) {
  const std::string without = R"({"samples": {}, "result": {"learning rate": "constant 0.1"}})",
                    with =
                        R"({"samples": {}, "result": {"learning rate": "constant 0.1", "--nesterov": true}})";
  EXPECT_THAT(compare_runs(without, with, "--resume swap", "/swap").text,
              HasSubstr("--nesterov true (was default)"));
  EXPECT_THAT(compare_runs(with, without, "--resume swap", "/swap").text,
              HasSubstr("--nesterov default (was true)"));
}

TEST(RunIdentity, it_says_whether_the_run_read_text) {
  const auto run = [](const std::string& data) { return R"({"samples": {"data": ")" + data + R"("}})"; };
  testing::TemporaryFolder folder;
  std::ofstream(folder.path("text")) << "some text";
  std::ofstream(folder.path("ids.bin")) << "some ids";
  EXPECT_TRUE(trained_on_text(run(Tokens::open(folder.path("text"), 256).fingerprint())));
  EXPECT_FALSE(trained_on_text(run(Tokens::open(folder.path("ids.bin"), 1 << 16).fingerprint())));
  EXPECT_FALSE(trained_on_text(""));
  EXPECT_FALSE(trained_on_text(R"({"samples": {}})"));
}

}  // namespace
}  // namespace headrace

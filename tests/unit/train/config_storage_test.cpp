// Where states are placed, and the folders they live in, in a configuration.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headrace/errors.h"
#include "tests/unit/train/config_of.h"

namespace headrace {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(Config, a_key_that_cannot_work_at_the_stage_is_an_error) {
  EXPECT_THAT(refusal(R"({"zero_optimization": {"stage": 2, "offload_param": {"device": "cpu"}}})"),
              HasSubstr("stage 3 only"));
  EXPECT_THAT(refusal("", {{"stage", "1"}, {"offload_gradients", "cpu"}}), HasSubstr("stages 2 and 3"));
}

// FIELD-CASES A16.
TEST(Config, nvme_without_a_path_is_an_error_that_names_the_key) {
  EXPECT_THAT(refusal(R"({"zero_optimization": {"offload_optimizer": {"device": "nvme"}}})"),
              AllOf(HasSubstr("--swap-path"), HasSubstr("nvme_path")));
  EXPECT_THAT(refusal("", {{"swap_path", "/x"}}), HasSubstr("would not be used"));
}

TEST(Config, the_smallest_block_holds_the_states_of_a_norm_chunk) {
  const std::pair<std::string, std::string> size{"swap_block", "24KiB"};
  EXPECT_THAT(refusal("", {size}), HasSubstr("from 48.0 KiB"));
  EXPECT_THAT(refusal("", {size, {"moments", "bf16"}}), HasSubstr("from 32.0 KiB"));
  EXPECT_EQ(refusal("", {size, {"moments", "bf16"}, {"master_dtype", "bf16"}}), "");
  const ResolvedOptions counted = resolve(
      R"({"zero_optimization": {"sub_group_size": 8192, "offload_optimizer": {"device": "nvme", "nvme_path": "/a"}}})",
      {{"moments", "int8"}});
  EXPECT_EQ(counted.engine.swap_block_bytes, 8192u * 4 + 2 * (8192 + 8192 / 64 * 4));
}

TEST(Config, parameters_and_gradients_on_nvme_share_the_optimizers_folder) {
  const auto section = [](const std::string& offload) {
    return R"({"zero_optimization": {"stage": 3, "offload_param": {"device": "nvme", "nvme_path": "/swap", "buffer_count": 7})" +
           offload + "}}";
  };
  const auto options = resolve(section(""), {{"offload_gradients", "nvme"}, {"gradient_buffers", "3"}});
  EXPECT_EQ(options.engine.parameter_tier, Tier::nvme);
  EXPECT_EQ(options.engine.gradient_tier, Tier::nvme);
  EXPECT_EQ(options.engine.parameter_buffers, 7u);
  EXPECT_EQ(options.engine.gradient_buffers, 3u);
  EXPECT_EQ(options.engine.swap_directories, std::vector<std::string>{"/swap/rank-00000"});
  EXPECT_EQ(refusal(section(R"(, "offload_optimizer": {"device": "nvme", "nvme_path": "/swap"})")), "");
  EXPECT_THAT(refusal(section(R"(, "offload_optimizer": {"device": "nvme", "nvme_path": "/other"})")),
              HasSubstr("both live in one place"));
  EXPECT_THAT(refusal("", {{"stage", "3"}, {"offload_parameters", "nvme"}}), HasSubstr("--swap-path"));
  EXPECT_THAT(refusal("", {{"stage", "2"}, {"offload_gradients", "nvme"}}), HasSubstr("--swap-path"));
}

TEST(Config, io_uring_can_be_required_and_then_threads_cannot_be_asked_for) {
  std::vector<std::pair<std::string, std::string>> flags = {{"offload_optimizer", "nvme"},
                                                            {"swap_path", "/swap"}};
  EXPECT_EQ(resolve("", flags).io, IoKind::automatic);
  flags.emplace_back("require_io_uring", "true");
  EXPECT_EQ(resolve("", flags).io, IoKind::io_uring);
  flags.emplace_back("io", "threads");
  EXPECT_THAT(refusal("", flags), AllOf(HasSubstr("--require-io-uring"), HasSubstr("--io threads")));
}

TEST(Config, polling_is_asked_for_by_flag_or_key_and_is_of_io_uring_alone) {
  std::vector<std::pair<std::string, std::string>> flags = {{"offload_optimizer", "nvme"},
                                                            {"swap_path", "/swap"}};
  EXPECT_FALSE(resolve("", flags).poll_completions || resolve("", flags).poll_submissions);
  const ResolvedOptions by_key =
      resolve(R"({"headrace": {"poll_completions": true, "poll_submissions": false}})", flags);
  EXPECT_TRUE(by_key.poll_completions && !by_key.poll_submissions);
  EXPECT_TRUE(resolve(by_key.effective_config).poll_completions);
  flags.emplace_back("poll_submissions", "true");
  EXPECT_TRUE(resolve("", flags).poll_submissions);
  flags.emplace_back("io", "threads");
  EXPECT_THAT(refusal("", flags), AllOf(HasSubstr("--poll-submissions"), HasSubstr("--io threads")));
  const auto without_nvme = resolve("", {{"poll_completions", "true"}, {"poll_submissions", "true"}});
  ASSERT_EQ(without_nvme.notes.size(), 1u);
  EXPECT_THAT(without_nvme.notes[0], AllOf(HasSubstr("--poll-completions"), HasSubstr("--poll-submissions"),
                                           HasSubstr("need something on NVMe")));
}

TEST(Config, swap_paths_are_a_text_or_a_list_and_the_flag_may_be_repeated) {
  using Paths = std::vector<std::string>;
  const std::string list = R"({"headrace": {"swap_path": ["/a", "/b", "/c"], "swap_parity": 1,
                                            "offload_optimizer": "nvme"}})";
  const ResolvedOptions options = resolve(list);
  EXPECT_EQ(options.swap_paths, (Paths{"/a", "/b", "/c"}));
  EXPECT_EQ(options.engine.swap_directories, (Paths{"/a/rank-00000", "/b/rank-00000", "/c/rank-00000"}));
  EXPECT_EQ(options.engine.swap_parity, 1u);
  EXPECT_EQ(resolve(options.effective_config).swap_paths, options.swap_paths);
  EXPECT_EQ(resolve(R"({"headrace": {"swap_path": "/a", "offload_optimizer": "nvme"}})").swap_paths,
            Paths{"/a"});
  ConfigDraft draft;
  draft.set_flag("model", "gpt2-mini");
  draft.read_text(list, "run.json");
  draft.set_flag("swap_path", Paths{"/x", "/y"});
  draft.set_flag("swap_path_rates", Paths{"1GB/s", "2GB/s"});
  draft.set_flag("swap_parity", "0");
  const ResolvedOptions flags = draft.resolve({});
  EXPECT_EQ(flags.swap_paths, (Paths{"/x", "/y"}));
  EXPECT_EQ(flags.engine.swap_path_rates, (std::vector<double>{1e9, 2e9}));
  EXPECT_THAT(flags.effective_config, HasSubstr("2000000000"));
}

// FIELD-CASES A16.
TEST(Config, swap_paths_that_make_no_sense_together_are_refused) {
  const auto with = [](const std::string& keys) {
    return refusal(R"({"headrace": {"offload_optimizer": "nvme", )" + keys + "}}");
  };
  EXPECT_THAT(with(R"("swap_path": ["/a", "/b/../a/"])"), HasSubstr("given twice"));
  EXPECT_THAT(with(R"("swap_path": ["/a", "/b"], "swap_parity": 2)"), HasSubstr("at least 3 swap paths"));
  EXPECT_THAT(with(R"("swap_path": ["/a", "/b"], "swap_path_rates": [1e9])"), HasSubstr("rates"));
  EXPECT_THAT(with(R"("swap_path": [])"), HasSubstr("at least one value"));
  EXPECT_THAT(with(R"("swap_path": ["/a", 3])"), HasSubstr("a text"));
  EXPECT_THAT(refusal("", {{"swap_parity", "1"}}), HasSubstr("something on NVMe"));
}

TEST(Config, rates_of_swap_paths_may_stand_in_one_text_and_errors_show_it_whole) {
  std::vector<std::pair<std::string, std::string>> flags = {{"offload_optimizer", "nvme"},
                                                            {"swap_path_rates", "3GB/s,1GB/s"}};
  EXPECT_EQ(resolve(R"({"headrace": {"swap_path": ["/a", "/b"]}})", flags).engine.swap_path_rates,
            (std::vector<double>{3e9, 1e9}));
  EXPECT_THAT(refusal("", {{"swap_path_rates", "3GB/s;1GB/s"}}), HasSubstr("\"3GB/s;1GB/s\""));
  EXPECT_THAT(refusal("", {{"swap_path_rates", "3GB/s,,1GB/s"}}), HasSubstr("\"3GB/s,,1GB/s\""));
  EXPECT_THAT(refusal("", {{"swap_path_rates", "3GB/s,0"}}), HasSubstr("above 0"));
  flags.emplace_back("swap_path", "/a");
  EXPECT_THAT(refusal("", flags), HasSubstr("--swap-path-rates has 2 rates for 1 swap path."));
}

TEST(Config, a_block_size_that_is_rounded_is_noted_with_what_is_used) {
  const auto notes = [](const std::string& size) {
    return resolve("", {{"offload_optimizer", "nvme"}, {"swap_path", "/a"}, {"swap_block", size}}).notes;
  };
  EXPECT_THAT(notes("786432"), IsEmpty());
  EXPECT_THAT(notes("786433"),
              ElementsAre(AllOf(HasSubstr("--swap-block"), HasSubstr("786432 bytes instead of 786433"))));
}

}  // namespace
}  // namespace headrace

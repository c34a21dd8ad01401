// Each test of the contract suite fails on an engine that breaks what it tests, and passes on the same engine
// whole. The engine of a child process is chosen by its environment [broken_engines() in
// engine_contract_test.cpp].
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <set>
#include <string>

#include "tests/support/broken_io_engine.h"

namespace headrace::testing {
namespace {

using ::testing::HasSubstr;

struct Claim {
  const char* test;
  Defect defect;
};
void PrintTo(const Claim& claim, std::ostream* out) {
  *out << claim.test << " on " << name_of(claim.defect);
}

constexpr Claim claims[] = {
    {"what_was_written_is_read_back", Defect::flips_a_bit},
    {"a_buffered_file_takes_any_offset_and_length", Defect::flips_a_bit},
    {"a_sector_is_enough_where_the_file_allows_it", Defect::flips_a_bit},
    {"a_transfer_of_zero_bytes_is_done_at_once", Defect::counts_a_byte_too_many},
    {"offsets_beyond_4_gib_reach_their_own_place", Defect::cuts_offsets_at_4_gib},
    {"bytes_outside_the_transfer_are_not_touched", Defect::writes_behind_its_bytes},
    {"bytes_outside_the_transfer_are_not_touched", Defect::writes_a_block_more},
    {"reading_past_the_end_is_an_error_that_says_how_much_there_was", Defect::hides_errors},
    {"a_file_that_ends_inside_a_block_is_read_up_to_its_end", Defect::hides_errors},
    {"the_kernels_refusal_is_a_result_not_an_exception", Defect::hides_errors},
    {"tickets_are_waited_for_in_any_order_and_on_any_thread", Defect::flips_a_bit},
    {"threads_submit_at_the_same_time_and_may_end_before_their_transfers", Defect::flips_a_bit},
    {"wait_may_be_repeated_and_take_returns_the_buffer_that_was_given", Defect::keeps_buffers},
    {"a_dropped_ticket_waits_and_gives_its_buffer_back", Defect::keeps_buffers},
    {"more_transfers_than_the_queue_depth_all_end", Defect::counts_a_byte_too_many},
    {"a_submit_beyond_the_buffer_or_any_file_is_the_callers_mistake", Defect::checks_no_arguments},
    {"counters_are_the_bytes_of_each_direction", Defect::counts_nothing},
    {"seconds_of_waiting_are_those_that_callers_were_blocked", Defect::counts_waiting_twice},
    {"a_transfer_of_more_than_2_gib_is_whole", Defect::cuts_transfers_at_2_gib},
    {"impossible_options_are_refused_by_name", Defect::takes_any_option},
    {"a_signal_every_millisecond_disturbs_nothing", Defect::flips_a_bit},
};

class ContractCanFail : public ::testing::TestWithParam<Claim> {
 protected:
  struct Outcome {
    int status = 0;
    std::string output;
  };
  static Outcome run_with(Defect defect) {
    const std::string program = std::filesystem::read_symlink("/proc/self/exe");
    const std::string command = std::string("HEADRACE_TEST_DEFECT=").append(name_of(defect)) + " '" +
                                program + "' --gtest_filter=Broken/IoEngineContract." + GetParam().test +
                                "/* 2>&1";
    Outcome outcome;
    std::FILE* child = ::popen(command.c_str(), "r");
    if (child == nullptr) return {.status = -1, .output = "the child cannot be started"};
    std::array<char, 4096> part{};
    while (const std::size_t bytes = std::fread(part.data(), 1, part.size(), child))
      outcome.output.append(part.data(), bytes);
    outcome.status = ::pclose(child);
    return outcome;
  }
};

TEST_P(ContractCanFail, on_an_engine_with_the_defect_and_on_no_whole_one) {
  const Outcome whole = run_with(Defect::none);
  EXPECT_EQ(whole.status, 0) << whole.output;
  if (whole.output.find("[  SKIPPED ]") != std::string::npos) GTEST_SKIP() << whole.output;
  EXPECT_THAT(whole.output, HasSubstr("[  PASSED  ] 1 test"));
  const Outcome broken = run_with(GetParam().defect);
  EXPECT_NE(broken.status, 0);
  EXPECT_THAT(broken.output, HasSubstr("[  FAILED  ]"));
}

INSTANTIATE_TEST_SUITE_P(Tests, ContractCanFail, ::testing::ValuesIn(claims), [](const auto& tested) {
  return std::string(tested.param.test).append("_on_").append(name_of(tested.param.defect));
});

TEST(ContractSuite, can_fail_in_each_of_its_tests) {
  std::set<std::string> shown;
  for (const Claim& claim : claims) shown.insert(claim.test);
  std::set<std::string> tests;
  const ::testing::UnitTest& all = *::testing::UnitTest::GetInstance();
  for (int s = 0; s < all.total_test_suite_count(); ++s) {
    const ::testing::TestSuite& suite = *all.GetTestSuite(s);
    if (std::string_view(suite.name()) != "Engines/IoEngineContract") continue;
    for (int t = 0; t < suite.total_test_count(); ++t) {
      const std::string name = suite.GetTestInfo(t)->name();
      tests.insert(name.substr(0, name.find('/')));
    }
  }
  EXPECT_EQ(shown, tests);
}

}  // namespace
}  // namespace headrace::testing

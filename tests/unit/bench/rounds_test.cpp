// The frame of a benchmark, driven by cases whose operations take a known time on no clock at all.
#include "src/bench/rounds.h"

#include <gtest/gtest.h>

#include <map>

#include "headrace/statistics.h"

namespace headrace {
namespace {

const Agree alone = [](const Observation& own) { return own; };

struct Cases {
  // Each operation takes `seconds`; a sample costs `overhead` besides.
  void add(const std::string& name, double seconds, double overhead = 0) {
    cases.push_back({name, [this, name, seconds, overhead](std::uint64_t count) {
                       order.push_back(name);
                       counts[name].push_back(count);
                       return overhead + seconds * static_cast<double>(count);
                     }});
  }
  std::vector<BenchCase> cases;
  std::vector<std::string> order;
  std::map<std::string, std::vector<std::uint64_t>> counts;
};

TEST(Rounds, cases_alternate) {
  Cases cases;
  cases.add("a", 1.0);  // a sample each to find that one operation is enough
  cases.add("b", 1.0);
  measure_rounds(cases.cases, 9.0, {}, alone);
  std::vector<std::string> expected;
  for (int round = 0; round <= most_rounds; ++round) expected.insert(expected.end(), {"a", "b"});
  EXPECT_EQ(cases.order, expected);
}

TEST(Rounds, a_sample_holds_as_many_operations_as_fill_its_share_of_the_time) {
  Cases cases;
  cases.add("fast", 1e-3);
  const Rounds rounds = measure_rounds(cases.cases, 0.9, {}, alone);  // 0.1 s a sample
  EXPECT_EQ(rounds.seconds[0].size(), static_cast<std::size_t>(most_rounds));
  EXPECT_NEAR(static_cast<double>(cases.counts["fast"].back()), 100, 1);
  EXPECT_DOUBLE_EQ(median(rounds.seconds[0]), 1e-3);
}

// The first guess, of one operation, takes the wake-up of a thread for the operation.
TEST(Rounds, a_cost_of_each_sample_does_not_keep_samples_short) {
  Cases cases;
  cases.add("woken", 1e-6, 100e-6);
  measure_rounds(cases.cases, 0.045, {}, alone);  // 5 ms a sample
  EXPECT_GT(cases.counts["woken"].back(), 3000u);
}

TEST(Rounds, no_sample_queues_more_operations_than_the_most) {
  Cases cases;
  cases.add("nothing", 0);
  measure_rounds(cases.cases, 100.0, {}, alone);
  EXPECT_EQ(cases.counts["nothing"].back(), most_operations);
}

TEST(Rounds, a_case_that_has_spent_its_time_gets_no_more_than_the_fewest_rounds) {
  Cases cases;
  cases.add("slow", 10.0);
  cases.add("quick", 0.1);
  const Rounds rounds = measure_rounds(cases.cases, 1.0, {}, alone);
  EXPECT_EQ(rounds.seconds[0].size(), static_cast<std::size_t>(fewest_rounds));
  EXPECT_EQ(rounds.seconds[1].size(), static_cast<std::size_t>(most_rounds));
}

TEST(Rounds, a_stop_ends_after_the_sample_in_progress_and_keeps_what_is_measured) {
  Cases cases;
  cases.add("a", 1.0);
  cases.add("b", 1.0);
  const BenchControl control{.stop_requested = [&] { return cases.order.size() == 5; }, .progress = {}};
  const Rounds rounds = measure_rounds(cases.cases, 9.0, control, alone);
  EXPECT_TRUE(rounds.stopped);
  EXPECT_EQ(cases.order.size(), 5u);  // two to find the operations, then a, b, a
  EXPECT_EQ(rounds.seconds[0].size(), 2u);
  EXPECT_EQ(rounds.seconds[1].size(), 1u);
}

// Otherwise the ranks would wait for each other in different places.
TEST(Rounds, what_follows_a_sample_is_decided_by_what_the_ranks_agreed_on) {
  Cases cases;
  cases.add("a", 1e-3);
  bool stop = false;
  const Agree slowest = [&](const Observation& own) {
    return Observation{.seconds = 10 * own.seconds, .stop_requested = stop ? 1u : 0u};
  };
  const Rounds rounds = measure_rounds(cases.cases, 0.9, {}, slowest);
  EXPECT_NEAR(static_cast<double>(cases.counts["a"].back()), 10, 1);
  EXPECT_NEAR(median(rounds.seconds[0]), 1e-2, 1e-9);
  stop = true;
  EXPECT_TRUE(measure_rounds(cases.cases, 0.9, {}, slowest).stopped);
}

TEST(Rounds, progress_goes_from_nothing_to_nearly_all) {
  Cases cases;
  cases.add("a", 1.0);
  cases.add("b", 1.0);
  std::vector<double> done;
  measure_rounds(
      cases.cases, 9.0,
      {.stop_requested = {}, .progress = [&](double share, std::string_view) { done.push_back(share); }},
      alone);
  EXPECT_EQ(done.front(), 0.0);
  EXPECT_TRUE(std::is_sorted(done.begin(), done.end()));
  EXPECT_GT(done.back(), 0.9);
  EXPECT_LE(done.back(), 1.0);
}

}  // namespace
}  // namespace headrace

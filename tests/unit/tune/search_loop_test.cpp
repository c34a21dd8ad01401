#include "src/tune/search_loop.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "headrace/errors.h"
#include "src/tune/swap_pipeline.h"
#include "src/tune/tune_space.h"
#include "tests/support/engine_harness.h"

namespace headrace::tune {
namespace {

Grid line(std::uint32_t length) {
  return {.sizes = {length},
          .allowed = [](const GridPoint&) { return true; },
          .memory = [](const GridPoint& point) { return static_cast<double>(point[0]); }};
}

// A clock that trials push forward.
struct FakeTime {
  double now = 0;
  std::vector<double> starts;
  std::vector<TuneTrial> told;
  std::size_t began = 0;
  bool stop = false;

  SearchLoop loop(std::function<double(const GridPoint&)> duration,
                  std::function<std::string()> failure = {}) {
    return {.now = [this] { return now; },
            .run =
                [this, duration, failure](const GridPoint& point, double) {
                  starts.push_back(now);
                  now += duration(point);
                  TuneTrial trial;
                  trial.failure = failure ? failure() : "";
                  trial.parameters_per_second = 100.0 - point[0];
                  return trial;
                },
            .stop_requested = [this] { return stop; },
            .trial_began = [this](const TuneSearch::Trial&) { ++began; },
            .trial_ended = [this](const TuneTrial& trial) { told.push_back(trial); }};
  }
};

const std::vector<GridPoint> all_of_ten = {{4}, {0}, {1}, {2}, {3}, {5}, {6}, {7}, {8}, {9}};

TEST(SearchLoop, ends_within_its_time_however_long_a_trial_takes) {
  for (const double duration : {0.01, 0.1, 0.9, 3.0, 11.0}) {
    FakeTime time;
    TuneSearch search(line(10), all_of_ten);
    search_until(search, 48, time.loop([&](const GridPoint&) { return duration; }));
    EXPECT_LE(time.now, 48) << duration;
    EXPECT_GE(time.now, 48 - 2.1 * duration) << duration;
  }
}

// What is learned from the longest trial is kept to: a drive may slow down at any time.
TEST(SearchLoop, begins_no_trial_that_would_end_late) {
  FakeTime time;
  TuneSearch search(line(10), all_of_ten);
  int trials = 0;
  search_until(search, 48, time.loop([&](const GridPoint&) { return ++trials % 5 == 0 ? 7.0 : 0.5; }));
  EXPECT_LE(time.now, 48);
  EXPECT_LE(time.starts.back(), 48 - 7.0);
}

TEST(SearchLoop, a_trial_longer_than_all_the_time_is_the_last) {
  FakeTime time;
  TuneSearch search(line(10), all_of_ten);
  search_until(search, 10, time.loop([](const GridPoint&) { return 25.0; }));
  EXPECT_EQ(time.starts.size(), 1u);
  ASSERT_TRUE(search.decision());
  EXPECT_EQ(search.decision()->best, GridPoint{4});
}

TEST(SearchLoop, runs_one_trial_however_late_it_is) {
  FakeTime time;
  time.now = 50;
  TuneSearch search(line(10), all_of_ten);
  search_until(search, 48, time.loop([](const GridPoint&) { return 1.0; }));
  EXPECT_EQ(time.starts.size(), 1u);
  EXPECT_TRUE(search.decision());
}

TEST(SearchLoop, stops_after_the_trial_in_progress) {
  FakeTime time;
  TuneSearch search(line(10), all_of_ten);
  search_until(search, 48, time.loop([&](const GridPoint&) {
    time.stop = time.starts.size() == 3;
    return 1.0;
  }));
  EXPECT_EQ(time.starts.size(), 3u);
}

TEST(SearchLoop, tells_of_every_trial_with_its_stage_and_goes_on_after_failures) {
  FakeTime time;
  TuneSearch search(line(10), all_of_ten);
  int trials = 0;
  search_until(
      search, 48,
      time.loop([](const GridPoint&) { return 0.5; }, [&] { return ++trials % 3 == 0 ? "no space" : ""; }));
  EXPECT_EQ(time.told.size(), time.starts.size());
  EXPECT_EQ(time.began, time.starts.size());
  EXPECT_EQ(time.told.front().stage, "coarse");
  EXPECT_TRUE(
      std::any_of(time.told.begin(), time.told.end(), [](const TuneTrial& t) { return !t.failure.empty(); }));
  EXPECT_TRUE(search.decision());
}

const std::vector<SwapPlacement> one_path = {{.name = "one", .paths = {0}, .rates = {}}};

TEST(TuneSpace, starts_with_the_defaults_of_a_run) {
  const TuneSpace space = make_tune_space(Bytes{1} << 30, 64 << 20, true, one_path, 0);
  SwapPoint usual;
  usual.io = IoKind::io_uring;
  EXPECT_EQ(space.usual(), usual);
  EXPECT_EQ(space.point(space.start().front()), usual);
  for (const GridPoint& at : space.start())
    for (std::size_t d = 0; d < at.size(); ++d) EXPECT_LT(at[d], space.grid().sizes[d]);
}

// What the end is compared with, on a disk where no trial is large enough for it too.
TEST(TuneSpace, allows_the_defaults_however_small_a_trial_is) {
  for (const std::uint64_t parameters : {std::uint64_t{1} << 18, std::uint64_t{1} << 26}) {
    const TuneSpace space = make_tune_space(Bytes{1} << 30, parameters, true, one_path, 0);
    EXPECT_TRUE(space.allowed(space.usual())) << parameters;
  }
  const TuneSpace limited = make_tune_space(Bytes{16} << 20, 64 << 20, true, one_path, 0);
  EXPECT_FALSE(limited.allowed(limited.usual()));
}

// With the last byte that the rule counts a point runs, and with one less the engine refuses it: blocks,
// staging, norms and, with parity, the pieces of each block in flight.
TEST(TuneSpace, takes_the_memory_of_a_point_to_be_what_the_engine_takes) {
  constexpr std::uint64_t parameters = 1'000'000;
  for (const std::uint32_t parity : {0u, 1u}) {
    const testing::TemporaryFolder first, second, third;
    const std::vector<std::string> folders = {first.path() + "/s", second.path() + "/s", third.path() + "/s"};
    const auto placements = make_placements(folders, {1e9, 1e9, 1e9}, parity);
    const TuneSpace space = make_tune_space(Bytes{1} << 30, parameters, false, placements, parity);
    for (const std::uint32_t buffers : {3u, 8u}) {
      SwapPipelineOptions options{.point = {.block_bytes = 768 << 10, .buffers = buffers},
                                  .parameters = parameters,
                                  .folders = folders,
                                  .parity = parity};
      options.host_memory_bytes = space.memory_of(options.point);
      SwapPipeline pipeline(options);
      (void)pipeline.step(UpdateKind::real);
      EXPECT_EQ(pipeline.host_bytes(), options.host_memory_bytes) << "parity " << parity;
      options.host_memory_bytes -= 1;
      options.reuse = true;
      EXPECT_THROW(SwapPipeline{options}, DoesNotFit) << "parity " << parity;
    }
  }
}

TEST(TuneSpace, holds_no_point_above_the_memory_limit) {
  const TuneSpace all = make_tune_space(~Bytes{0}, 64 << 20, false, one_path, 0);
  for (const Bytes limit : {Bytes{4} << 20, Bytes{32} << 20, Bytes{1} << 30}) {
    const TuneSpace space = make_tune_space(limit, 64 << 20, false, one_path, 0);
    int allowed = 0, refused = 0;
    for (const GridPoint& at : all.start()) {
      if (!all.grid().allowed(at)) continue;
      const bool fits =
          planned_host_bytes({.point = all.point(at), .parameters = 64 << 20, .folders = {""}}) <= limit;
      EXPECT_EQ(space.grid().allowed(at), fits);
      (fits ? allowed : refused)++;
    }
    EXPECT_GE(allowed, 1) << limit;
    EXPECT_TRUE(refused >= 1 || limit == Bytes{1} << 30) << limit;
  }
}

TEST(TuneSpace, tries_each_placement_of_several_paths_at_the_start) {
  const TuneSpace space = make_tune_space(Bytes{1} << 30, 64 << 20, true,
                                          {one_path[0], one_path[0], one_path[0], one_path[0]}, 0);
  std::vector<bool> tried(4);
  for (const GridPoint& at : space.start()) tried[space.point(at).placement] = true;
  EXPECT_EQ(std::count(tried.begin(), tried.end(), true), 4);
}

TEST(Placements, are_by_rate_and_alike_and_each_path_alone) {
  EXPECT_EQ(make_placements({"/a"}, {1e9}, 0).size(), 1u);
  EXPECT_EQ(make_placements({"/a", "/b"}, {1e9, 1.05e9}, 0).size(), 3u);  // as good as alike
  const auto two = make_placements({"/a", "/b"}, {1e9, 3e9}, 0);
  ASSERT_EQ(two.size(), 4u);
  EXPECT_EQ(two[0].rates, (std::vector<double>{1e9, 3e9}));
  EXPECT_EQ(two[1].rates[0], two[1].rates[1]);
  EXPECT_EQ(two[3].paths, std::vector<std::uint32_t>{1});
}

TEST(WrittenBytes, of_a_step_are_the_states_and_the_parity) {
  EXPECT_EQ(written_bytes_a_step(1000, 1, 0), 12000u);
  EXPECT_EQ(written_bytes_a_step(1000, 3, 0), 12000u);
  EXPECT_EQ(written_bytes_a_step(1000, 3, 1), 18000u);
  EXPECT_EQ(written_bytes_a_step(1000, 4, 2), 24000u);
}

double step_seconds(const DriveRates& rates, double seconds) {
  const auto parameters = static_cast<double>(trial_parameters(rates, seconds, Bytes{1} << 42, 0));
  return parameters * 12 * (1 / rates.read_bytes_per_second + 1 / rates.write_bytes_per_second);
}

TEST(TrialParameters, fit_the_rate_the_disk_and_the_run) {
  constexpr DriveRates usual_drive = {2e9, 3e9};
  const std::uint64_t usual = trial_parameters(usual_drive, 60, Bytes{1} << 40, 0);
  const Bytes little = Bytes{512} << 20;
  EXPECT_LT(trial_parameters(usual_drive, 60, little, 0), usual);
  EXPECT_LE(trial_parameters(usual_drive, 60, little, 0) * 12 * 2 * stores_kept, little / 2);
  EXPECT_EQ(trial_parameters(usual_drive, 60, 1 << 20, 0), 0u);
  EXPECT_EQ(trial_parameters(usual_drive, 60, Bytes{1} << 40, 12345), 12345u);
}

// From a network folder to a row of drives: a step is a small part of the time, so that many trials fit; the
// buffers of the defaults are small beside it where that leaves time for a dozen.
TEST(TrialParameters, leave_time_for_many_trials_on_any_drive) {
  for (const double rate : {2e7, 1e8, 3e8, 1e9, 3e9, 1e10, 4e10})
    for (const double seconds : {10.0, 60.0, 600.0})
      EXPECT_LE(step_seconds({rate, rate}, seconds), std::max(seconds / 60, 7e6 / rate)) << rate;
  EXPECT_NEAR(step_seconds({2e9, 3e9}, 60), 0.2, 0.01);
  EXPECT_NEAR(step_seconds({1e8, 1e8}, 60), 1.0, 0.1);
  EXPECT_GE(trial_parameters({2e8, 3e8}, 60, Bytes{1} << 40, 0) * 12, 4u * 8 * (3 << 20));
}

}  // namespace
}  // namespace headrace::tune

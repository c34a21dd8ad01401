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
  EXPECT_EQ(space.point(space.start().front()), usual);
  for (const GridPoint& at : space.start())
    for (std::size_t d = 0; d < at.size(); ++d) EXPECT_LT(at[d], space.grid().sizes[d]);
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
      (void)pipeline.step(UpdateKind::adam);
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

TEST(TrialParameters, fit_the_rate_the_disk_and_the_run) {
  const std::uint64_t usual = trial_parameters(2e9, 3e9, 0.25, Bytes{1} << 40, 0);
  EXPECT_NEAR(static_cast<double>(usual) * 12 * (1 / 2e9 + 1 / 3e9), 0.25, 0.01);
  EXPECT_LT(trial_parameters(2e8, 3e8, 0.25, Bytes{1} << 40, 0), usual / 9);
  const Bytes little = Bytes{512} << 20;
  EXPECT_LE(trial_parameters(2e9, 3e9, 0.25, little, 0) * 12 * 2 * stores_kept, little / 2);
  EXPECT_EQ(trial_parameters(2e9, 3e9, 0.25, 1 << 20, 0), 0u);
  EXPECT_EQ(trial_parameters(2e9, 3e9, 0.25, Bytes{1} << 40, 12345), 12345u);
}

}  // namespace
}  // namespace headrace::tune

#include "src/tune/tune_search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "src/tune/report_facts.h"

namespace headrace::tune {
namespace {

// A pipeline with a known optimum: each dimension costs the square of the distance from its best index; the
// rate drifts up and down over the trials, and every sample is noisy.
struct FakePipeline {
  GridPoint optimum = {6, 2, 3};
  double noise = 0.0, drift = 0.0, steepness = 0.03;
  std::uint64_t seed = 1;
  std::set<GridPoint> broken = {};

  double true_rate(const GridPoint& point) const {
    double cost = 1;
    for (std::size_t d = 0; d < point.size(); ++d) {
      const double distance = static_cast<double>(point[d]) - static_cast<double>(optimum[d]);
      cost += steepness * distance * distance;
    }
    return 100 / cost;
  }
};

Grid grid_of(std::vector<std::uint32_t> sizes) {
  return {.sizes = std::move(sizes),
          .allowed = [](const GridPoint&) { return true; },
          .memory = [](const GridPoint& point) { return static_cast<double>(point[0] * 10 + point[1]); }};
}
Grid usual_grid() {
  return grid_of({10, 6, 5});
}
const std::vector<GridPoint> usual_start = {{3, 2, 2}, {1, 2, 2}, {5, 2, 2}, {7, 2, 2}, {9, 2, 2},
                                            {1, 4, 2}, {3, 4, 2}, {5, 4, 2}, {7, 4, 2}, {9, 4, 2}};

struct SearchRun {
  std::vector<TuneSearch::Trial> trials;
  std::optional<TuneSearch::Decision> decision;
};

SearchRun search_on(const FakePipeline& pipeline, Grid grid, const std::vector<GridPoint>& start,
                    int budget) {
  TuneSearch search(std::move(grid), start);
  std::mt19937_64 random(pipeline.seed);
  std::normal_distribution<double> noise(0, pipeline.noise);
  SearchRun result;
  while (const auto trial = search.next(static_cast<double>(result.trials.size()) / budget)) {
    const double level = 1 + pipeline.drift * std::sin(0.37 * static_cast<double>(result.trials.size()));
    result.trials.push_back(*trial);
    if (pipeline.broken.contains(trial->point))
      search.failed(trial->point);
    else
      search.succeeded(trial->point, pipeline.true_rate(trial->point) * level * std::exp(noise(random)));
  }
  result.decision = search.decision();
  return result;
}

bool was_run(const SearchRun& run, const GridPoint& point) {
  return std::any_of(run.trials.begin(), run.trials.end(),
                     [&](const TuneSearch::Trial& trial) { return trial.point == point; });
}

TEST(TuneSearch, without_noise_finds_the_optimum) {
  for (const GridPoint& optimum : std::vector<GridPoint>{{6, 2, 3}, {0, 0, 0}, {9, 5, 4}, {4, 1, 2}}) {
    const SearchRun result = search_on({.optimum = optimum}, usual_grid(), usual_start, 90);
    ASSERT_TRUE(result.decision);
    EXPECT_EQ(result.decision->best, optimum);
  }
}

// 5% noise on each sample and a level that swings by 15%: what a shared disk does.
TEST(TuneSearch, under_noise_and_drift_comes_near_the_optimum) {
  int near = 0;
  constexpr int seeds = 200;
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    const FakePipeline pipeline{.noise = 0.05, .drift = 0.15, .seed = seed};
    const SearchRun result = search_on(pipeline, usual_grid(), usual_start, 60);
    ASSERT_TRUE(result.decision);
    const double reached = pipeline.true_rate(result.decision->best) / pipeline.true_rate(pipeline.optimum);
    EXPECT_GT(reached, 0.80) << "seed " << seed;
    if (reached > 0.93) ++near;
  }
  EXPECT_GE(near, seeds * 9 / 10);
}

TEST(TuneSearch, proposes_only_what_ran_and_did_not_fail) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed)
    for (const int budget : {1, 2, 3, 5, 8, 13, 21, 34, 55}) {
      FakePipeline pipeline{.noise = 0.1, .seed = seed};
      std::mt19937_64 random(seed);
      for (std::uint32_t a = 0; a < 10; ++a)
        for (std::uint32_t b = 0; b < 6; ++b)
          for (std::uint32_t c = 0; c < 5; ++c)
            if (random() % 3 == 0) pipeline.broken.insert({a, b, c});
      const SearchRun result = search_on(pipeline, usual_grid(), usual_start, budget);
      EXPECT_LE(result.trials.size(), static_cast<std::size_t>(budget));
      if (!result.decision) continue;
      EXPECT_FALSE(pipeline.broken.contains(result.decision->best));
      EXPECT_TRUE(was_run(result, result.decision->best));
    }
}

TEST(TuneSearch, tries_a_failed_point_once) {
  FakePipeline pipeline;
  pipeline.broken = {{6, 2, 3}, {3, 2, 2}, {7, 2, 2}};
  const SearchRun result = search_on(pipeline, usual_grid(), usual_start, 90);
  for (const GridPoint& point : pipeline.broken)
    EXPECT_LE(std::count_if(result.trials.begin(), result.trials.end(),
                            [&](const TuneSearch::Trial& trial) { return trial.point == point; }),
              1);
}

TEST(TuneSearch, decides_for_the_only_point_that_runs) {
  FakePipeline pipeline;
  for (std::uint32_t a = 0; a < 10; ++a)
    for (std::uint32_t b = 0; b < 6; ++b)
      for (std::uint32_t c = 0; c < 5; ++c) pipeline.broken.insert({a, b, c});
  pipeline.broken.erase(GridPoint{9, 4, 2});
  const SearchRun result = search_on(pipeline, usual_grid(), usual_start, 60);
  ASSERT_TRUE(result.decision);
  EXPECT_EQ(result.decision->best, (GridPoint{9, 4, 2}));
  EXPECT_FALSE(result.decision->runner_up);
}

TEST(TuneSearch, decides_nothing_when_every_point_fails) {
  FakePipeline pipeline;
  pipeline.broken = {usual_start.begin(), usual_start.end()};
  const SearchRun result = search_on(pipeline, usual_grid(), usual_start, 60);
  EXPECT_FALSE(result.decision);
  EXPECT_EQ(result.trials.size(), usual_start.size());
}

TEST(TuneSearch, leaves_the_points_beyond_the_limit_alone) {
  Grid grid = usual_grid();
  grid.allowed = [](const GridPoint& point) { return point[0] <= 4; };
  const SearchRun result = search_on({}, grid, usual_start, 90);
  for (const TuneSearch::Trial& trial : result.trials) EXPECT_LE(trial.point[0], 4u);
  ASSERT_TRUE(result.decision);
  EXPECT_EQ(result.decision->best, (GridPoint{4, 2, 3}));
}

TEST(TuneSearch, without_an_allowed_point_tries_nothing) {
  Grid grid = usual_grid();
  grid.allowed = [](const GridPoint&) { return false; };
  const SearchRun result = search_on({}, grid, usual_start, 90);
  EXPECT_TRUE(result.trials.empty());
  EXPECT_FALSE(result.decision);
}

// The winner is measured beside the runner-up and the usual point, in turns.
TEST(TuneSearch, confirms_the_best_in_turns_with_the_runner_up_and_the_usual_point) {
  const SearchRun result = search_on({.noise = 0.02}, usual_grid(), usual_start, 60);
  ASSERT_TRUE(result.decision && result.decision->runner_up && result.decision->usual);
  const std::vector<GridPoint> turns = {result.decision->best, result.decision->runner_up->with,
                                        usual_start.front()};
  EXPECT_NE(turns[0], turns[2]);
  EXPECT_NE(turns[1], turns[2]);
  EXPECT_GE(result.decision->runner_up->pairs, 2);
  EXPECT_GE(result.decision->usual->pairs, 2);
  std::map<GridPoint, int> count;
  for (const TuneSearch::Trial& trial : result.trials) {
    if (trial.stage != TuneSearch::Stage::confirm) continue;
    ASSERT_TRUE(std::find(turns.begin(), turns.end(), trial.point) != turns.end());
    ++count[trial.point];
  }
  for (const GridPoint& point : turns) EXPECT_NEAR(count[point], count[turns[0]], 2);
}

// However the level drifts meanwhile, the ratio to the usual point is that of the two.
TEST(TuneSearch, says_how_much_faster_than_the_usual_point_the_best_is) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed)
    for (const int budget : {25, 60}) {
      const FakePipeline pipeline{.noise = 0.01, .drift = 0.15, .seed = seed};
      const SearchRun result = search_on(pipeline, usual_grid(), usual_start, budget);
      ASSERT_TRUE(result.decision && result.decision->usual);
      EXPECT_EQ(result.decision->usual->with, usual_start.front());
      const double real = pipeline.true_rate(result.decision->best) / pipeline.true_rate(usual_start.front());
      EXPECT_NEAR(result.decision->usual->ratio, real, 0.1 * real) << "seed " << seed;
    }
}

TEST(TuneSearch, has_nothing_to_compare_where_the_usual_point_is_best_or_cannot_run) {
  const SearchRun best = search_on({.optimum = usual_start.front()}, usual_grid(), usual_start, 60);
  ASSERT_TRUE(best.decision);
  EXPECT_EQ(best.decision->best, usual_start.front());
  EXPECT_FALSE(best.decision->usual);
  const SearchRun broken = search_on({.broken = {usual_start.front()}}, usual_grid(), usual_start, 60);
  ASSERT_TRUE(broken.decision);
  EXPECT_FALSE(broken.decision->usual);
  Grid grid = usual_grid();
  grid.allowed = [](const GridPoint& point) { return point != usual_start.front(); };
  const SearchRun forbidden = search_on({}, grid, usual_start, 60);
  ASSERT_TRUE(forbidden.decision);
  EXPECT_FALSE(forbidden.decision->usual);
  EXPECT_FALSE(was_run(forbidden, usual_start.front()));
}

// What a lucky sample has put in front of the usual point is found out in the turns.
TEST(TuneSearch, goes_back_to_the_usual_point_where_nothing_is_faster) {
  int kept = 0;
  constexpr int seeds = 100;
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    const FakePipeline pipeline{.optimum = {0, 0, 0}, .noise = 0.1, .seed = seed};
    const std::vector<GridPoint> start = {{0, 0, 0}, {1, 0, 0}, {0, 1, 0}, {0, 0, 1}};
    const SearchRun result = search_on(pipeline, usual_grid(), start, 60);
    ASSERT_TRUE(result.decision);
    if (result.decision->best == start.front()) ++kept;
  }
  EXPECT_GE(kept, seeds * 3 / 4);
}

// Two points of the same rate, 3% noise: the one that takes less memory.
TEST(TuneSearch, of_equal_points_takes_the_smaller) {
  int smaller = 0;
  constexpr int seeds = 100;
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    TuneSearch search(grid_of({2, 1}), {{1, 0}, {0, 0}});
    std::mt19937_64 random(seed);
    std::normal_distribution<double> noise(0, 0.03);
    for (int trials = 0; const auto trial = search.next(trials / 40.0); ++trials)
      search.succeeded(trial->point, 100 * std::exp(noise(random)));
    const auto decision = search.decision();
    ASSERT_TRUE(decision);
    if (decision->best == GridPoint{0, 0}) ++smaller;
  }
  EXPECT_GE(smaller, seeds * 9 / 10);
}

// A neighbour that was better the first time, when the time for neighbours ends, is the one to beat.
TEST(TuneSearch, confirms_what_came_last_too) {
  TuneSearch search(grid_of({3, 1}), {{1, 0}, {0, 0}});
  const double rates[] = {90, 100, 150};
  const auto run = [&](double spent) {
    const auto trial = search.next(spent);
    EXPECT_TRUE(trial);
    if (!trial) return GridPoint{};
    search.succeeded(trial->point, rates[trial->point[0]]);
    return trial->point;
  };
  for (int coarse = 0; coarse < 3; ++coarse) run(0.1);
  GridPoint at;
  for (int trials = 0; trials < 20 && at != GridPoint{2, 0}; ++trials) at = run(0.7);
  ASSERT_EQ(at, (GridPoint{2, 0}));
  for (const double spent : {0.71, 0.9, 0.92, 0.94, 0.96, 0.98}) run(spent);
  ASSERT_TRUE(search.decision());
  EXPECT_EQ(search.decision()->best, (GridPoint{2, 0}));
}

TEST(TuneSearch, stops_when_the_time_is_over) {
  TuneSearch search(usual_grid(), usual_start);
  EXPECT_FALSE(search.next(1.0));
  EXPECT_FALSE(search.next(7.5));
  EXPECT_FALSE(search.decision());
}

// What the start points left alone comes before the neighbours of what they have seen.
TEST(TuneSearch, looks_first_along_what_the_start_points_have_alike) {
  const SearchRun result = search_on({.optimum = {3, 2, 0}}, usual_grid(), usual_start, 60);
  const auto first = std::find_if(result.trials.begin(), result.trials.end(), [](const auto& trial) {
    return trial.stage == TuneSearch::Stage::fine && trial.point[2] != usual_start.front()[2];
  });
  ASSERT_NE(first, result.trials.end());
  for (auto trial = result.trials.begin(); trial != first; ++trial)
    if (trial->stage == TuneSearch::Stage::fine) {
      EXPECT_EQ(trial->point[2], usual_start.front()[2]);
      EXPECT_TRUE(std::find(usual_start.begin(), usual_start.end(), trial->point) != usual_start.end());
    }
}

TEST(TuneSearch, does_not_try_again_beside_the_best_what_was_far_behind) {
  FakePipeline steep{.optimum = {3, 2, 2}};
  steep.steepness = 0.5;
  const SearchRun result = search_on(steep, usual_grid(), usual_start, 90);
  ASSERT_TRUE(result.decision);
  EXPECT_EQ(result.decision->best, (GridPoint{3, 2, 2}));
  for (const auto& trial : result.trials)
    if (trial.stage == TuneSearch::Stage::fine) {
      EXPECT_FALSE(trial.point == (GridPoint{1, 2, 2}) || trial.point == (GridPoint{5, 2, 2}));
    }
}

TEST(TuneReportFacts, name_what_no_trial_has_varied) {
  std::vector<TuneTrial> trials = {{.point = {}}, {.point = {.block_bytes = 1 << 20}}};
  EXPECT_EQ(unvaried(trials), (std::vector<std::string>{"buffers", "queue depth", "request size"}));
  trials.push_back({.point = {.queue_depth = 8}, .failure = "no space"});
  EXPECT_EQ(unvaried(trials).size(), 3u);
  trials.push_back({.point = {.buffers = 3, .queue_depth = 4, .request_bytes = 4096}});
  EXPECT_TRUE(unvaried(trials).empty());
  EXPECT_TRUE(unvaried({}).empty());
}

TEST(TuneReportFacts, drift_is_between_samples_of_one_point) {
  const SwapPoint defaults, other{.buffers = 3};
  std::vector<TuneTrial> trials = {{.point = defaults, .parameters_per_second = 100},
                                   {.point = other, .parameters_per_second = 1}};
  EXPECT_EQ(drift_of(defaults, trials), 0);
  trials.push_back({.point = defaults, .parameters_per_second = 150});
  EXPECT_EQ(drift_of(defaults, trials), 1.5);
}

}  // namespace
}  // namespace headrace::tune

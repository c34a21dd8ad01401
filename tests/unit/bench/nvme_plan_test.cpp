#include "src/bench/nvme_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "src/bench/storage_facts.h"

namespace headrace {
namespace {

using namespace literals;

TEST(NvmeWorks, are_every_combination_once_with_names_of_their_own) {
  NvmeBenchOptions options{.paths = {"a"}, .blocks = {128_KiB, 1_MiB}, .depths = {1, 8, 32}};
  const std::vector<BlockWork> works = nvme_works(options);
  EXPECT_EQ(works.size(), 3u * 2 * 2 * 3);
  EXPECT_EQ(text_of(works.front()), "sequential read 128KiB depth 1");
  EXPECT_EQ(text_of(works.back()), "random mixed 1MiB depth 32");
  std::vector<std::string> names;
  for (const BlockWork& work : works) names.push_back(text_of(work));
  std::sort(names.begin(), names.end());
  EXPECT_EQ(std::unique(names.begin(), names.end()), names.end());
}

TEST(FileBytes, are_the_usual_size_where_space_is_plenty_and_a_tenth_of_it_otherwise) {
  EXPECT_EQ(choose_file_bytes(0, 4_GiB, 100_MiB, 8_MiB, {.free_bytes = 1000_GiB}), 4_GiB);
  EXPECT_EQ(choose_file_bytes(0, 4_GiB, 100_MiB, 8_MiB, {.free_bytes = 20_GiB}), 2_GiB);
  EXPECT_EQ(choose_file_bytes(0, 4_GiB, 100_MiB, 3_MiB, {.free_bytes = 1000_GiB}), 4095_MiB);  // whole blocks
}

TEST(FileBytes, are_never_less_than_is_needed_nor_nearly_all_that_is_free) {
  EXPECT_EQ(choose_file_bytes(0, 4_GiB, 100_MiB, 8_MiB, {.free_bytes = 200_MiB}), 104_MiB);
  EXPECT_EQ(choose_file_bytes(0, 4_GiB, 100_MiB, 8_MiB, {.free_bytes = 105_MiB}), std::nullopt);
  EXPECT_EQ(choose_file_bytes(0, 4_GiB, 100_MiB, 8_MiB, {.free_bytes = 0}), std::nullopt);
}

TEST(FileBytes, leave_memory_where_the_file_is_memory) {
  EXPECT_EQ(choose_file_bytes(0, 4_GiB, 100_MiB, 8_MiB, {.free_bytes = 100_GiB, .memory_bytes = 8_GiB}),
            2_GiB);
  EXPECT_EQ(choose_file_bytes(0, 4_GiB, 100_MiB, 8_MiB, {.free_bytes = 100_GiB, .memory_bytes = 150_MiB}),
            std::nullopt);
  EXPECT_EQ(choose_file_bytes(6_GiB, 4_GiB, 100_MiB, 8_MiB, {.free_bytes = 100_GiB, .memory_bytes = 8_GiB}),
            std::nullopt);
}

TEST(FileBytes, are_as_asked_where_they_fit) {
  EXPECT_EQ(choose_file_bytes(50_GiB, 4_GiB, 100_MiB, 8_MiB, {.free_bytes = 100_GiB}), 50_GiB);
  EXPECT_EQ(choose_file_bytes(101_MiB, 4_GiB, 100_MiB, 8_MiB, {.free_bytes = 100_GiB}), 104_MiB);
  EXPECT_EQ(choose_file_bytes(90_MiB, 4_GiB, 100_MiB, 8_MiB, {.free_bytes = 100_GiB}), std::nullopt);
  EXPECT_EQ(choose_file_bytes(97_GiB, 4_GiB, 100_MiB, 8_MiB, {.free_bytes = 100_GiB}), std::nullopt);
}

// The schedule on no clock at all: a sample takes what it is given and what its case costs beside.
struct Simulated {
  double used = 0;
  std::vector<int> rounds{};
};
Simulated simulate(double seconds, const std::vector<double>& guessed, const std::vector<double>& real) {
  Simulated run{.rounds = std::vector<int>(real.size())};
  SampleSchedule schedule(guessed);
  std::size_t expected = 0;
  while (const auto sample = schedule.next(seconds - run.used)) {
    EXPECT_GE(sample->seconds, least_sample_seconds);
    if (guessed == real) {
      EXPECT_EQ(sample->index, expected++ % real.size());  // they alternate
    }
    const double took = sample->seconds + real[sample->index];
    run.used += took;
    ++run.rounds[sample->index];
    schedule.took(*sample, took);
  }
  return run;
}

TEST(TimeBudget, is_used_and_kept_when_samples_cost_what_was_expected) {
  const std::vector<double> fixed(54, 0.01);
  for (const double seconds : {8.0, 20.0, 60.0, 600.0}) {
    const Simulated run = simulate(seconds, fixed, fixed);
    EXPECT_LE(run.used, seconds * 1.001);
    EXPECT_GE(run.used, seconds * 0.95) << seconds;
    for (const int rounds : run.rounds) EXPECT_GE(rounds, 3) << seconds;
  }
}

TEST(TimeBudget, is_kept_when_samples_cost_ten_times_what_was_guessed_or_a_tenth) {
  for (const double factor : {0.1, 10.0}) {
    std::vector<double> guessed, real;
    for (int c = 0; c < 54; ++c) {
      guessed.push_back(c % 9 == 8 ? 0.1 : 0.005);  // a long queue has a long end
      real.push_back(guessed.back() * factor);
    }
    const Simulated run = simulate(60, guessed, real);
    EXPECT_LE(run.used, 61) << factor;
    EXPECT_GE(run.used, 54) << factor;
    for (const int rounds : run.rounds) EXPECT_GE(rounds, 1) << factor;
  }
}

TEST(TimeBudget, too_short_for_all_cases_gives_those_that_fit_their_samples) {
  const std::vector<double> costs = {0.001, 5.0, 0.001, 0.5, 0.001};
  double used = 0;
  std::vector<int> rounds(costs.size());
  SampleSchedule schedule(costs);
  while (const auto sample = schedule.next(1.0 - used)) {
    used += sample->seconds + costs[sample->index];
    ++rounds[sample->index];
    schedule.took(*sample, sample->seconds + costs[sample->index]);
  }
  EXPECT_LE(used, 1.0);
  EXPECT_EQ(rounds[1], 0);
  for (const std::size_t quick : {0, 2, 4}) EXPECT_GE(rounds[quick], 1);
}

TEST(TimeBudget, one_sample_that_took_long_does_not_end_the_rest_early) {
  double used = 0;
  SampleSchedule schedule(std::vector<double>(24, 0.005));
  for (int taken = 0;; ++taken) {
    const auto sample = schedule.next(5.0 - used);
    if (!sample) break;
    const double took = sample->seconds + (taken == 3 || taken == 4 ? 0.6 : 0.005);
    used += took;
    schedule.took(*sample, took);
  }
  EXPECT_LE(used, 5.05);
  EXPECT_GE(used, 4.75);
}

TEST(TimeBudget, more_time_gives_more_rounds_and_then_longer_samples) {
  const std::vector<double> fixed(10, 0.001);
  const auto rounds = [&](double seconds) { return simulate(seconds, fixed, fixed).rounds.front(); };
  EXPECT_EQ(rounds(0.3), 1);
  EXPECT_EQ(rounds(1.0), 3);  // short samples, enough for a median
  EXPECT_EQ(rounds(2.9), 3);
  EXPECT_EQ(rounds(5.1), 5);
  EXPECT_EQ(rounds(100.0), most_nvme_rounds);
  EXPECT_FALSE(SampleSchedule(fixed).next(-1.0));
  EXPECT_FALSE(SampleSchedule(fixed).next(0.02));
  EXPECT_NEAR(SampleSchedule(fixed).next(90.09)->seconds, 1.0, 1e-3);
}

TEST(SampleSchedule, gives_a_case_that_is_left_out_no_turn_and_its_time_to_the_others) {
  SampleSchedule schedule(std::vector<double>(3, 0.001));
  double used = 0;
  std::vector<int> rounds(3);
  for (int taken = 0; const auto sample = schedule.next(3.0 - used); ++taken) {
    used += sample->seconds + 0.001;
    ++rounds[sample->index];
    schedule.took(*sample, sample->seconds + 0.001);
    if (taken == 4) schedule.leave_out(1);
  }
  EXPECT_EQ(rounds, (std::vector<int>{9, 2, 9}));
  EXPECT_GE(used, 2.7);
  EXPECT_LE(used, 3.0);
}

TEST(SampleSchedule, ends_where_every_case_is_left_out) {
  SampleSchedule schedule({0.001, 0.001});
  ASSERT_TRUE(schedule.next(1));
  schedule.leave_out(0);
  schedule.leave_out(1);
  EXPECT_FALSE(schedule.next(1));
  EXPECT_FALSE(schedule.next(0));
}

TEST(BlocksInFlight, are_the_depth_for_every_usual_case_on_every_device_with_the_engine_that_is_asked_for) {
  for (const std::size_t paths : {1u, 3u}) {
    NvmeBenchOptions options{.paths = std::vector<std::string>(paths),
                             .blocks = default_nvme_blocks(),
                             .depths = default_nvme_depths(),
                             .engine = {}};
    const IoEngineOptions engine = nvme_engine_options(options);
    EXPECT_EQ(io_shape("io_uring", engine, 0).in_flight_bytes, ~Bytes{0});
    for (const Bytes request : {2_MiB, 4_MiB, 8_MiB})
      for (const BlockWork& work : nvme_works(options))
        EXPECT_EQ(
            blocks_in_flight(work, {.queue_depth = engine.queue_depth, .request_bytes = request}, paths),
            work.depth)
            << text_of(work);
  }
}

TEST(BlocksInFlight, are_fewer_than_the_depth_where_requests_or_bytes_are_bounded) {
  const BlockWork work{.block_bytes = 8_MiB, .depth = 32};
  EXPECT_EQ(blocks_in_flight(work, {.queue_depth = 64, .request_bytes = 2_MiB}, 1), 16);
  EXPECT_EQ(blocks_in_flight(work, {.queue_depth = 64, .request_bytes = 2_MiB}, 2), 8);
  EXPECT_EQ(blocks_in_flight(work, {.queue_depth = 64, .request_bytes = 3_MiB}, 1), 64.0 / 3);
  EXPECT_EQ(
      blocks_in_flight(work, {.queue_depth = 512, .request_bytes = 2_MiB, .in_flight_bytes = 64_MiB}, 1), 8);
  EXPECT_EQ(
      blocks_in_flight({.block_bytes = 1_GiB, .depth = 1}, {.queue_depth = 64, .request_bytes = 2_MiB}, 1),
      0.125);
}

TEST(EngineOptions, of_any_depth_and_block_are_some_that_an_engine_takes) {
  NvmeBenchOptions options{.paths = {"a"}, .blocks = {1_GiB}, .depths = {1024}, .engine = {}};
  EXPECT_EQ(nvme_engine_options(options).queue_depth, most_queue_depth);
  EXPECT_NO_THROW(make_thread_engine({.queue_depth = most_queue_depth}));
  EXPECT_THROW(make_thread_engine({.queue_depth = most_queue_depth + 1}), UsageError);
}

TEST(Draining, takes_what_is_in_flight_at_the_rate_so_far) {
  EXPECT_DOUBLE_EQ(drain_seconds(8_MiB, 32_MiB, 2.0), 0.5);
  EXPECT_DOUBLE_EQ(drain_seconds(8_MiB, 1_MiB, 0.1), 0.1);  // the first of them
  EXPECT_EQ(drain_seconds(0, 0, 5.0), 0);
}

TEST(TooLittleWritten, asks_for_time_in_which_the_file_can_be_written) {
  const DoesNotFit error = too_little_written("--seconds", 10_MiB, 0.5, 20_MiB, 0.2);  // needs 5 s
  EXPECT_NE(std::string(error.what()).find("Give --seconds 6, or smaller --block"), std::string::npos)
      << error.what();
}

TEST(Sustained, a_fast_cache_that_fills_is_seen_as_a_drop_to_the_steady_rate) {
  std::vector<double> rates(20, 5.0);
  rates.resize(60, 1.2);
  rates[3] = 40;  // one interval is no rate
  const SustainedSummary summary = sustained_summary(rates);
  EXPECT_EQ(summary.first, 5.0);
  EXPECT_EQ(summary.steady, 1.2);
  EXPECT_TRUE(summary.settled);
}

TEST(Sustained, an_even_count_has_the_mean_of_its_middle_two) {
  EXPECT_DOUBLE_EQ(sustained_summary({1, 1, 1, 1, 0.4, 0.8}).steady, 0.6);
}

TEST(Sustained, a_rate_that_rises_is_its_own_ceiling) {
  NvmeSustained result;
  result.first = 1;
  result.steady = 1.08;
  EXPECT_EQ(result.ceiling(), 1.08);
  EXPECT_LT(result.drop(), 0);
  result.first = 4;
  EXPECT_EQ(result.ceiling(), 4);
}

TEST(OneRound, asks_for_more_time_than_there_was) {
  EXPECT_EQ(one_round_note(5), "1 round a case, where MAD is -: give --seconds 60, or fewer --block/--depth");
  EXPECT_NE(one_round_note(60).find("--seconds 180,"), std::string::npos);
}

TEST(Sustained, a_rate_that_still_falls_has_not_settled) {
  std::vector<double> rates;
  for (int i = 0; i < 60; ++i) rates.push_back(6 - 0.09 * i);
  EXPECT_FALSE(sustained_summary(rates).settled);
}

TEST(Sustained, few_intervals_have_a_rate_and_no_claim_that_it_settled) {
  EXPECT_EQ(sustained_summary({2.0}).steady, 2.0);
  EXPECT_EQ(sustained_summary({2.0}).first, 2.0);
  EXPECT_FALSE(sustained_summary({2.0}).settled);
  EXPECT_EQ(sustained_summary({3.0, 1.0, 2.0}).steady, 2.0);
  EXPECT_FALSE(sustained_summary({3.0, 1.0, 2.0, 2.0, 2.0}).settled);
}

TEST(Source, is_the_drive_only_where_nothing_speaks_against_it) {
  const SourceEvidence good{.from_storage = 1.0, .rate = 3, .highest_rate = 20};
  EXPECT_EQ(source_of(good), NvmeSource::direct);
  SourceEvidence evidence = good;
  evidence.direct = false;
  EXPECT_EQ(source_of(evidence), NvmeSource::buffered);
  evidence.from_storage = 0.5;  // half of it was in the page cache
  EXPECT_EQ(source_of(evidence), NvmeSource::cached);
  evidence = good;
  evidence.from_storage = std::nullopt;  // writes, or nobody counts
  EXPECT_EQ(source_of(evidence), NvmeSource::direct);
  evidence.in_memory = true;
  EXPECT_EQ(source_of(evidence), NvmeSource::cached);
  evidence = good;
  evidence.rate = 21;
  EXPECT_EQ(source_of(evidence), NvmeSource::cached);
}

TEST(PcieRate, is_of_the_lanes_after_the_line_code) {
  EXPECT_NEAR(pcie_rate("16.0 GT/s PCIe", "4").value(), 7.88, 0.01);
  EXPECT_NEAR(pcie_rate("5.0 GT/s PCIe", "2").value(), 1.0, 0.01);
  EXPECT_NEAR(pcie_rate("32 GT/s", "4").value(), 15.75, 0.01);
  EXPECT_FALSE(pcie_rate("", ""));
  EXPECT_FALSE(pcie_rate("Unknown", "0"));
}

}  // namespace
}  // namespace headrace

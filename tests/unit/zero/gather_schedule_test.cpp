#include "src/zero/gather_schedule.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "headrace/errors.h"

namespace headrace {
namespace {

std::vector<UnitId> gathered_by(GatherSchedule& schedule, UnitId unit) {
  std::vector<UnitId> units;
  for (const auto& gather : schedule.acquire(unit)) units.push_back(gather.unit);
  return units;
}

// Forward over all units, then backward.
void run_micro_batch(GatherSchedule& schedule, UnitId units, std::vector<UnitId>* gathers = nullptr) {
  schedule.begin_micro_batch();
  for (UnitId i = 0; i < 2 * units; ++i) {
    const UnitId unit = i < units ? i : 2 * units - 1 - i;
    for (const UnitId gathered : gathered_by(schedule, unit))
      if (gathers != nullptr) gathers->push_back(gathered);
    schedule.release(unit);
  }
}

TEST(GatherSchedule, bytes_of_slots_do_not_grow_with_depth) {
  const GatherSchedule::Options options{.prefetch_units = 1};
  EXPECT_EQ(GatherSchedule(std::vector<Bytes>(6, 100), options).total_bytes(), 200u);
  EXPECT_EQ(GatherSchedule(std::vector<Bytes>(600, 100), options).total_bytes(), 200u);
}

TEST(GatherSchedule, gives_units_of_different_size_slots_of_their_own_class) {
  const GatherSchedule schedule({1000, 100, 100, 100, 10, 0}, {.prefetch_units = 1});
  EXPECT_EQ(schedule.slot_bytes(), (std::vector<Bytes>{1000, 100, 100, 10}));
}

TEST(GatherSchedule, without_an_order_gathers_only_what_is_acquired) {
  GatherSchedule schedule({8, 8, 8}, {.prefetch_units = 2, .retain = false});
  schedule.begin_micro_batch();
  EXPECT_EQ(gathered_by(schedule, 1), (std::vector<UnitId>{1}));
}

TEST(GatherSchedule, prefetches_by_the_recorded_order) {
  GatherSchedule schedule(std::vector<Bytes>(4, 8), {.prefetch_units = 1, .retain = false});
  run_micro_batch(schedule, 4);
  schedule.begin_micro_batch();
  EXPECT_EQ(gathered_by(schedule, 0), (std::vector<UnitId>{0, 1}));
  schedule.release(0);
  EXPECT_EQ(gathered_by(schedule, 1), (std::vector<UnitId>{2}));
}

TEST(GatherSchedule, without_retention_gathers_every_unit_once_an_acquire) {
  for (const std::uint32_t prefetch : {0u, 1u, 2u, 5u}) {
    GatherSchedule schedule(std::vector<Bytes>(5, 8), {.prefetch_units = prefetch, .retain = false});
    for (int micro_batch = 0; micro_batch < 3; ++micro_batch) {
      std::vector<UnitId> gathers;
      run_micro_batch(schedule, 5, &gathers);
      EXPECT_EQ(gathers.size(), 10u) << "prefetch " << prefetch;
    }
  }
}

TEST(GatherSchedule, with_retention_does_not_gather_the_last_unit_again_for_its_backward) {
  GatherSchedule schedule(std::vector<Bytes>(5, 8), {.prefetch_units = 1, .retain = true});
  run_micro_batch(schedule, 5);
  std::vector<UnitId> gathers;
  run_micro_batch(schedule, 5, &gathers);
  EXPECT_EQ(std::count(gathers.begin(), gathers.end(), 4u), 1);
  EXPECT_LT(gathers.size(), 10u);
}

TEST(GatherSchedule, never_gives_a_held_slot_away) {
  GatherSchedule schedule(std::vector<Bytes>(6, 8), {.prefetch_units = 2, .retain = true});
  for (int micro_batch = 0; micro_batch < 4; ++micro_batch) {
    schedule.begin_micro_batch();
    for (UnitId i = 0; i < 12; ++i) {
      const UnitId unit = i < 6 ? i : 11 - i;
      const auto gathers = schedule.acquire(unit);
      const auto held = *schedule.slot_of(unit);
      for (const auto& gather : gathers) EXPECT_TRUE(gather.unit == unit || gather.slot != held);
      schedule.release(unit);
    }
  }
}

TEST(GatherSchedule, a_unit_acquired_twice_at_once_stays_until_both_are_released) {
  GatherSchedule schedule({8, 8}, {.prefetch_units = 0});
  schedule.begin_micro_batch();
  schedule.acquire(0);
  EXPECT_TRUE(schedule.acquire(0).empty());
  schedule.release(0);
  EXPECT_THROW(schedule.acquire(1), UsageError);
  schedule.release(0);
  EXPECT_EQ(schedule.acquire(1).size(), 1u);
}

TEST(GatherSchedule, forgets_contents_when_parameters_change) {
  GatherSchedule schedule({8}, {.prefetch_units = 1});
  schedule.begin_micro_batch();
  schedule.acquire(0);
  schedule.release(0);
  EXPECT_TRUE(schedule.acquire(0).empty());
  schedule.release(0);
  schedule.invalidate();
  EXPECT_EQ(schedule.acquire(0).size(), 1u);
}

TEST(GatherSchedule, an_evaluation_after_the_first_step_does_not_join_the_recorded_order) {
  GatherSchedule schedule(std::vector<Bytes>(4, 8), {.prefetch_units = 1, .retain = false});
  run_micro_batch(schedule, 4);
  schedule.invalidate();
  for (UnitId unit = 0; unit < 4; ++unit) {
    EXPECT_EQ(gathered_by(schedule, unit), (std::vector<UnitId>{unit}));
    schedule.release(unit);
  }
  std::vector<UnitId> gathers;
  run_micro_batch(schedule, 4, &gathers);
  EXPECT_EQ(gathers.size(), 8u);
}

TEST(GatherSchedule, a_different_path_stops_prefetch_until_the_next_micro_batch) {
  GatherSchedule schedule(std::vector<Bytes>(4, 8), {.prefetch_units = 1, .retain = false});
  run_micro_batch(schedule, 4);
  schedule.begin_micro_batch();
  schedule.acquire(3);
  schedule.release(3);
  EXPECT_EQ(gathered_by(schedule, 0), (std::vector<UnitId>{0}));
  schedule.release(0);
  schedule.begin_micro_batch();
  EXPECT_EQ(gathered_by(schedule, 0), (std::vector<UnitId>{0, 1}));
}

// What upcoming() says before each acquire, against the gathers that follow, over several micro-batches.
void expect_forecast_is_right(GatherSchedule schedule, const std::vector<std::vector<UnitId>>& calls) {
  std::vector<UnitId> forecast, gathered;
  const auto run = [&](bool check) {
    schedule.begin_micro_batch();
    for (const std::vector<UnitId>& held : calls) {  // acquired together, released together
      for (const UnitId unit : held) {
        if (check && forecast.empty()) forecast = schedule.upcoming(5, true), gathered.clear();
        for (const UnitId next : gathered_by(schedule, unit)) gathered.push_back(next);
        if (!check || gathered.size() < forecast.size()) continue;
        gathered.resize(forecast.size());
        EXPECT_EQ(gathered, forecast);
        forecast.clear();
      }
      for (const UnitId unit : held) schedule.release(unit);
    }
  };
  run(false);
  run(false);
  for (int micro_batch = 0; micro_batch < 4; ++micro_batch) run(true);
}

TEST(GatherSchedule, knows_what_it_will_gather) {
  const std::vector<std::vector<UnitId>> there_and_back{{0}, {1}, {2}, {3}, {4}, {4}, {3}, {2}, {1}, {0}},
      nested{{0}, {0, 1}, {0, 2}, {3}, {0, 3}, {2}, {0, 1}, {0}};
  for (const std::uint32_t prefetch : {0u, 1u, 2u, 4u})
    for (const bool retain : {false, true})
      for (const auto& calls : {there_and_back, nested}) {
        SCOPED_TRACE(prefetch);
        expect_forecast_is_right(
            GatherSchedule({8, 8, 8, 8, 8}, {.prefetch_units = std::max(prefetch, 1u), .retain = retain}),
            calls);
        expect_forecast_is_right(
            GatherSchedule({100, 8, 8, 0, 8}, {.prefetch_units = prefetch, .retain = retain}),
            there_and_back);
      }
}

TEST(GatherSchedule, foresees_nothing_without_an_order_and_beyond_the_last_micro_batch) {
  GatherSchedule schedule(std::vector<Bytes>(4, 8), {.prefetch_units = 0, .retain = false});
  EXPECT_TRUE(schedule.upcoming(8, true).empty());
  run_micro_batch(schedule, 4);
  EXPECT_TRUE(schedule.upcoming(8, true).empty());  // still learning
  schedule.invalidate();
  EXPECT_EQ(schedule.upcoming(3, false), (std::vector<UnitId>{0, 1, 2}));  // of the next one
  run_micro_batch(schedule, 4);
  EXPECT_TRUE(schedule.upcoming(8, false).empty());
  EXPECT_EQ(schedule.upcoming(2, true), (std::vector<UnitId>{0, 1}));
}

TEST(GatherSchedule, foresees_nothing_once_the_order_is_left) {
  GatherSchedule schedule(std::vector<Bytes>(4, 8), {.prefetch_units = 0, .retain = false});
  run_micro_batch(schedule, 4);
  schedule.begin_micro_batch();
  schedule.acquire(2);
  EXPECT_TRUE(schedule.upcoming(8, true).empty());
}

// FIELD-CASES A17: a forecast goes through the gathered units alone, however many others there are.
TEST(GatherSchedule, records_no_resident_unit_and_decides_as_if_there_were_none) {
  const std::vector<UnitId> gathered{100, 500, 900};
  std::vector<Bytes> unit_bytes(1000, 0);
  for (const UnitId unit : gathered) unit_bytes[unit] = 8;
  GatherSchedule with_residents(unit_bytes, {.prefetch_units = 1}), alone({8, 8, 8}, {.prefetch_units = 1});
  for (int micro_batch = 0; micro_batch < 3; ++micro_batch) {
    std::vector<UnitId> gathers, expected;
    run_micro_batch(with_residents, 1000, &gathers);
    run_micro_batch(alone, 3, &expected);
    for (UnitId& unit : expected) unit = gathered[unit];
    EXPECT_EQ(gathers, expected);
    EXPECT_EQ(with_residents.recorded_calls(), 2u * 2 * 3);  // acquire and release, forward and backward
  }
}

// Released later than when the order was recorded: the forecast ends where it would hold more than there is.
TEST(GatherSchedule, foresees_without_fail_when_more_is_held_than_before) {
  GatherSchedule schedule(std::vector<Bytes>(4, 8), {.prefetch_units = 0, .retain = false});
  run_micro_batch(schedule, 4);
  schedule.begin_micro_batch();
  schedule.acquire(0);
  EXPECT_EQ(schedule.upcoming(2, false), (std::vector<UnitId>{1, 2}));
  schedule.acquire(0);  // held twice
  EXPECT_TRUE(schedule.upcoming(8, false).empty());
}

}  // namespace
}  // namespace headrace

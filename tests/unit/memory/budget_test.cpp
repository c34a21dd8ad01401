#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <thread>
#include <vector>

#include "headrace/errors.h"
#include "headrace/memory.h"

namespace headrace {
namespace {

using testing::HasSubstr;

TEST(MemoryBudget, exactly_the_limit_fits_and_one_byte_more_does_not) {
  MemoryBudget budget("host", 1000);
  budget.charge(MemoryTag::staging, 999);
  budget.charge(MemoryTag::optimizer, 1);
  EXPECT_THROW(budget.charge(MemoryTag::staging, 1), DoesNotFit);
  EXPECT_EQ(budget.current().total(), 1000u);
}

TEST(MemoryBudget, a_refused_charge_changes_neither_current_nor_peak) {
  MemoryBudget budget("host", 100);
  budget.charge(MemoryTag::staging, 60);
  EXPECT_THROW(budget.charge(MemoryTag::staging, 41), DoesNotFit);
  EXPECT_EQ(budget.current()[MemoryTag::staging], 60u);
  EXPECT_EQ(budget.peak()[MemoryTag::staging], 60u);
  EXPECT_EQ(budget.peak_total(), 60u);
}

TEST(MemoryBudget, a_charge_that_would_wrap_64_bits_is_refused) {
  MemoryBudget budget("host", 100);
  budget.charge(MemoryTag::staging, 50);
  EXPECT_THROW(budget.charge(MemoryTag::staging, std::numeric_limits<Bytes>::max()), DoesNotFit);
}

TEST(MemoryBudget, peaks_are_of_each_tag_and_of_the_sum_at_one_time) {
  MemoryBudget budget("device", 100);
  budget.charge(MemoryTag::activations, 70);
  budget.refund(MemoryTag::activations, 70);
  budget.charge(MemoryTag::gradients, 60);
  EXPECT_EQ(budget.peak()[MemoryTag::activations], 70u);
  EXPECT_EQ(budget.peak()[MemoryTag::gradients], 60u);
  EXPECT_EQ(budget.peak_total(), 70u);
  EXPECT_EQ(budget.current()[MemoryTag::activations], 0u);
}

TEST(MemoryBudget, the_refusal_names_tier_request_and_every_tag_in_use) {
  MemoryBudget budget("device", 1 << 20);
  budget.charge(MemoryTag::parameters, 512 << 10);
  budget.charge(MemoryTag::gradient_accumulators, 256 << 10);
  try {
    budget.charge(MemoryTag::activations, 300 << 10);
    FAIL() << "did not throw";
  } catch (const DoesNotFit& error) {
    EXPECT_THAT(error.what(), HasSubstr("device memory"));
    EXPECT_THAT(error.what(), HasSubstr(format_bytes(300 << 10) + " more for activations"));
    EXPECT_THAT(error.what(), HasSubstr("parameters"));
    EXPECT_THAT(error.what(), HasSubstr("gradient_accumulators"));
    EXPECT_THAT(error.what(), HasSubstr(format_bytes(1 << 20)));
  }
}

TEST(MemoryBudget, the_limit_holds_when_threads_charge_at_once) {
  MemoryBudget budget("host", 1000);
  const auto charge_and_refund = [&] {
    for (int i = 0; i < 2000; ++i) try {
        budget.charge(MemoryTag::staging, 300);
        budget.refund(MemoryTag::staging, 300);
      } catch (const DoesNotFit&) {
      }
  };
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t) threads.emplace_back(charge_and_refund);
  threads.clear();
  EXPECT_EQ(budget.current().total(), 0u);
  EXPECT_LE(budget.peak_total(), 900u);
  EXPECT_EQ(budget.peak_total() % 300, 0u);
}

TEST(MemoryTags, each_has_its_own_name) {
  std::vector<std::string_view> names;
  for (std::size_t t = 0; t < memory_tag_count; ++t) names.push_back(name_of(static_cast<MemoryTag>(t)));
  std::sort(names.begin(), names.end());
  EXPECT_EQ(std::unique(names.begin(), names.end()), names.end());
  EXPECT_THAT(names, testing::Not(testing::Contains("?")));
}

TEST(AvailableHostMemory, is_at_least_what_a_test_can_touch_and_at_most_the_machine) {
  const Bytes available = available_host_memory();
  EXPECT_GT(available, Bytes{1} << 20);
  EXPECT_LT(available, Bytes{1} << 50);
}

}  // namespace
}  // namespace headrace

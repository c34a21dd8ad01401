#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <stdexcept>

#include "headrace/errors.h"
#include "headrace/memory.h"

namespace headrace {
namespace {

struct Arena {
  explicit Arena(Bytes limit) : budget("device", limit), memory(base(), budget) {}
  // Addresses only are handed out; nothing is touched.
  static std::byte* base() { return reinterpret_cast<std::byte*>(std::uintptr_t{1} << 20); }
  Bytes offset(const std::byte* p) const { return static_cast<Bytes>(p - base()); }
  MemoryBudget budget;
  DeviceMemory memory;
};

TEST(DeviceMemory, persistent_grows_from_the_bottom_and_the_stack_from_the_top) {
  Arena arena(1024);
  EXPECT_EQ(arena.offset(arena.memory.persistent(MemoryTag::parameters, 100)), 0u);
  EXPECT_EQ(arena.offset(arena.memory.persistent(MemoryTag::parameters, 64)), 128u);
  EXPECT_EQ(arena.offset(arena.memory.push(MemoryTag::activations, 1)), 960u);
  EXPECT_EQ(arena.offset(arena.memory.push(MemoryTag::activations, 65)), 832u);
  EXPECT_EQ(arena.memory.persistent_bytes(), 192u);
}

TEST(DeviceMemory, the_last_byte_is_usable_and_the_regions_cannot_meet) {
  Arena arena(256);
  arena.memory.persistent(MemoryTag::parameters, 128);
  EXPECT_EQ(arena.offset(arena.memory.push(MemoryTag::activations, 128)), 128u);
  EXPECT_THROW(arena.memory.push(MemoryTag::activations, 1), DoesNotFit);
  EXPECT_THROW(arena.memory.persistent(MemoryTag::gradients, 1), DoesNotFit);
}

TEST(DeviceMemory, a_limit_that_is_no_multiple_of_64_keeps_alignment_and_bounds) {
  Arena arena(1000);
  const Bytes top = arena.offset(arena.memory.push(MemoryTag::activations, 64));
  EXPECT_EQ(top % 64, 0u);
  EXPECT_LE(top + 64, 1000u);
  EXPECT_THROW(arena.memory.persistent(MemoryTag::parameters, 900), DoesNotFit);
}

TEST(DeviceMemory, pop_frees_all_pushed_since_the_mark_and_the_memory_is_reused) {
  Arena arena(1024);
  arena.memory.push(MemoryTag::activations, 64);
  const auto mark = arena.memory.mark();
  const std::byte* first = arena.memory.push(MemoryTag::workspace, 64);
  arena.memory.push(MemoryTag::activations, 128);
  arena.memory.pop_to(mark);
  EXPECT_EQ(arena.budget.current()[MemoryTag::workspace], 0u);
  EXPECT_EQ(arena.budget.current()[MemoryTag::activations], 64u);
  EXPECT_EQ(arena.memory.push(MemoryTag::activations, 64), first);
}

TEST(DeviceMemory, a_mark_that_is_no_border_or_lies_above_the_top_is_a_bug) {
  Arena arena(1024);
  arena.memory.push(MemoryTag::activations, 128);
  EXPECT_THROW(arena.memory.pop_to(192), std::logic_error);
  EXPECT_THROW(arena.memory.pop_to(64), std::logic_error);
}

TEST(DeviceMemory, the_stack_peak_outlives_pops) {
  Arena arena(1024);
  arena.memory.push(MemoryTag::activations, 300);
  arena.memory.pop_to(0);
  arena.memory.push(MemoryTag::activations, 10);
  EXPECT_EQ(arena.memory.stack_peak_bytes(), 320u);
  EXPECT_EQ(arena.budget.peak()[MemoryTag::activations], 320u);
}

TEST(DeviceMemory, a_refusal_changes_nothing_and_prints_the_ledger) {
  Arena arena(256);
  arena.memory.persistent(MemoryTag::optimizer, 128);
  try {
    arena.memory.push(MemoryTag::activations, std::numeric_limits<Bytes>::max());
    FAIL() << "did not throw";
  } catch (const DoesNotFit& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("optimizer"));
  }
  EXPECT_EQ(arena.memory.mark(), 0u);
  EXPECT_EQ(arena.offset(arena.memory.push(MemoryTag::activations, 128)), 128u);
}

TEST(DeviceMemory, blocks_of_zero_bytes_cost_nothing) {
  Arena arena(0);
  EXPECT_EQ(arena.offset(arena.memory.persistent(MemoryTag::parameters, 0)), 0u);
  EXPECT_EQ(arena.offset(arena.memory.push(MemoryTag::activations, 0)), 0u);
  arena.memory.pop_to(0);
}

}  // namespace
}  // namespace headrace

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "headrace/errors.h"
#include "headrace/memory.h"
#include "tests/support/bounded_wait.h"

namespace headrace {
namespace {

constexpr Bytes mebibyte = Bytes{1} << 20;

TEST(StagingPool, buffers_are_disjoint_aligned_and_inside_the_one_allocation) {
  MemoryBudget budget("host", mebibyte);
  StagingPool pool(budget, MemoryTag::staging, 5000, 3);
  EXPECT_EQ(pool.buffer_bytes(), 8192u);  // to 4 KiB, not to a power of two: 3 x 8192, not 4 x
  EXPECT_EQ(budget.current()[MemoryTag::staging], 3u * 8192u);
  std::vector<HostLease> leases;
  std::set<std::byte*> starts;
  for (int i = 0; i < 3; ++i) leases.push_back(pool.acquire());
  for (const HostLease& lease : leases) {
    EXPECT_EQ(lease.memory().size(), 8192u);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(lease.data()) % 4096, 0u);
    EXPECT_EQ(static_cast<Bytes>(lease.data() - pool.memory().data()) % 8192, 0u);
    EXPECT_LE(lease.data() + lease.memory().size(), pool.memory().data() + pool.memory().size());
    starts.insert(lease.data());
  }
  EXPECT_EQ(starts.size(), 3u);
}

TEST(StagingPool, a_size_just_over_a_power_of_two_is_not_rounded_to_the_next) {
  MemoryBudget budget("host", 4 * mebibyte);
  const StagingPool pool(budget, MemoryTag::staging, mebibyte + 1, 2);
  EXPECT_EQ(pool.buffer_bytes(), mebibyte + 4096);
}

TEST(StagingPool, try_acquire_is_empty_when_all_are_out_and_works_after_one_comes_back) {
  MemoryBudget budget("host", mebibyte);
  StagingPool pool(budget, MemoryTag::staging, 4096, 1);
  HostLease lease = pool.try_acquire();
  EXPECT_TRUE(lease);
  EXPECT_FALSE(pool.try_acquire());
  lease.reset();
  EXPECT_TRUE(pool.try_acquire());
}

TEST(StagingPool, acquire_blocks_until_another_thread_gives_back) {
  MemoryBudget budget("host", mebibyte);
  StagingPool pool(budget, MemoryTag::staging, 4096, 1);
  HostLease held = pool.acquire();
  std::atomic<bool> got{false};
  std::jthread waiter([&] {
    const HostLease lease = pool.acquire();
    got = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(got);
  held.reset();
  EXPECT_TRUE(test::eventually([&] { return got.load(); }));
}

TEST(StagingPool, the_high_water_mark_counts_buffers_out_at_one_time) {
  MemoryBudget budget("host", mebibyte);
  StagingPool pool(budget, MemoryTag::staging, 4096, 4);
  for (int i = 0; i < 10; ++i) const HostLease lease = pool.acquire();
  EXPECT_EQ(pool.peak_in_use(), 1u);
  const HostLease a = pool.acquire(), b = pool.acquire();
  EXPECT_EQ(pool.peak_in_use(), 2u);
}

TEST(StagingPool, no_buffer_is_ever_leased_twice_at_once) {
  MemoryBudget budget("host", mebibyte);
  StagingPool pool(budget, MemoryTag::staging, 4096, 3);
  std::atomic<int> clashes{0};
  const auto use = [&](std::byte mark) {
    for (int i = 0; i < 500; ++i) {
      HostLease lease = i % 2 == 0 ? pool.acquire() : pool.try_acquire();
      if (!lease) continue;
      lease.data()[0] = mark;
      std::this_thread::yield();
      if (lease.data()[0] != mark) ++clashes;
    }
  };
  std::vector<std::jthread> threads;
  for (int t = 1; t <= 4; ++t) threads.emplace_back(use, std::byte(t));
  threads.clear();
  EXPECT_EQ(clashes, 0);
  EXPECT_LE(pool.peak_in_use(), 3u);
}

TEST(StagingPool, too_large_a_pool_is_refused_with_the_ledger) {
  MemoryBudget budget("host", 3 * 4096);
  EXPECT_THROW(StagingPool(budget, MemoryTag::staging, 4096, 4), DoesNotFit);
  EXPECT_EQ(budget.current().total(), 0u);
}

TEST(HostLease, a_moved_from_lease_gives_nothing_back) {
  MemoryBudget budget("host", mebibyte);
  StagingPool pool(budget, MemoryTag::staging, 4096, 2);
  {
    HostLease first = pool.acquire();
    HostLease second = std::move(first);
    EXPECT_FALSE(first);
    second = pool.acquire();  // gives the first buffer back
  }
  const HostLease a = pool.try_acquire(), b = pool.try_acquire();
  EXPECT_TRUE(a);
  EXPECT_TRUE(b);
  EXPECT_FALSE(pool.try_acquire());  // two buffers came back, not three
}

}  // namespace
}  // namespace headrace

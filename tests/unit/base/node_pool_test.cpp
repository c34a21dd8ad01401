// The pool of a machine with several nodes, on this one: what a node is, the placement says.
#include "src/base/node_pool.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <array>
#include <atomic>
#include <chrono>
#include <mutex>
#include <numeric>
#include <set>
#include <stdexcept>
#include <thread>

#include "headrace/topology.h"
#include "src/base/piece_queues.h"

namespace headrace {
namespace {

using Body = std::function<void(std::uint64_t)>;
using NodeOf = std::function<int(std::uint64_t)>;

// Two nodes that are not there, on CPUs that are.
std::vector<NodeThreads> two_nodes(int first, int second) {
  const std::vector<int> mask = read_cpu_limits().affinity;
  return {{.node = 0, .cpus = {mask.front()}, .threads = first},
          {.node = 1, .cpus = {mask.back()}, .threads = second}};
}

std::vector<int> current_mask() {
  cpu_set_t set;
  CPU_ZERO(&set);
  sched_getaffinity(0, sizeof(set), &set);
  std::vector<int> cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  return cpus;
}

void expect_each_once(NodePool& pool, std::uint64_t count, const NodeOf* node_of) {
  std::vector<std::atomic<int>> ran(count);
  const Body body = [&](std::uint64_t piece) { ++ran[piece]; };
  pool.run({.count = count, .body = body, .node_of = node_of});
  for (std::uint64_t piece = 0; piece < count; ++piece) ASSERT_EQ(ran[piece], 1) << piece;
}

TEST(NodePool, runs_every_piece_once_wherever_it_is_at_home) {
  for (const auto& [first, second] : {std::pair{1, 1}, {1, 3}, {3, 1}, {2, 2}}) {
    NodePool pool(first + second, two_nodes(first, second));
    const NodeOf alternating = [](std::uint64_t piece) { return static_cast<int>(piece % 2); };
    const NodeOf on_one = [](std::uint64_t) { return 1; };
    const NodeOf partly_known = [](std::uint64_t piece) { return static_cast<int>(piece % 4) - 1; };
    for (const std::uint64_t count : {0, 1, 2, 3, 100, 1000})
      for (const NodeOf* node_of :
           {static_cast<const NodeOf*>(nullptr), &alternating, &on_one, &partly_known})
        expect_each_once(pool, count, node_of);
  }
}

TEST(NodePool, threads_are_bound_to_the_cpus_of_a_node_and_the_caller_is_free_again_afterwards) {
  const std::vector<int> before = current_mask();
  const auto placement = two_nodes(1, 1);
  NodePool pool(2, placement);
  std::mutex mutex;
  std::set<std::vector<int>> masks;
  const Body body = [&](std::uint64_t) {
    const std::lock_guard lock(mutex);
    masks.insert(current_mask());
  };
  for (int i = 0; i < 20; ++i) pool.run({.count = 10, .body = body});
  for (const std::vector<int>& mask : masks)
    EXPECT_TRUE(mask == placement[0].cpus || mask == placement[1].cpus) << mask.size() << " CPUs";
  EXPECT_FALSE(masks.empty());
  EXPECT_EQ(current_mask(), before);
}

TEST(NodePool, of_one_thread_is_bound_too_and_the_caller_is_free_again_afterwards) {
  const std::vector<int> before = current_mask();
  if (before.size() < 2) GTEST_SKIP() << "needs two CPUs to tell a bound thread";
  NodePool pool(1, {{.node = 0, .cpus = {before.back()}, .threads = 1}});
  int ran = 0;
  const Body inner = [&](std::uint64_t) {
    ++ran;
    EXPECT_EQ(current_mask(), std::vector{before.back()});
  };
  const Body outer = [&](std::uint64_t) { pool.run({.count = 2, .body = inner}); };
  pool.run({.count = 3, .body = outer});
  EXPECT_EQ(ran, 6);
  EXPECT_EQ(current_mask(), before);
  const Body failing = [](std::uint64_t) { throw std::runtime_error("piece"); };
  EXPECT_THROW(pool.run({.count = 3, .body = failing}), std::runtime_error);
  EXPECT_EQ(current_mask(), before);
}

TEST(NodePool, of_one_node_binds_nothing) {
  const std::vector<int> before = current_mask();
  NodePool pool(2, {});
  const Body body = [&](std::uint64_t) { EXPECT_EQ(current_mask(), before); };
  const NodeOf never = [](std::uint64_t) -> int { throw std::logic_error("asked for a node"); };
  pool.run({.count = 100, .body = body, .node_of = &never});
}

TEST(NodePool, the_first_error_reaches_the_caller_and_the_pool_lives_on) {
  NodePool pool(3, two_nodes(1, 2));
  const NodeOf alternating = [](std::uint64_t piece) { return static_cast<int>(piece % 2); };
  for (int i = 0; i < 50; ++i) {
    const Body body = [](std::uint64_t piece) {
      if (piece == 7) throw std::runtime_error("piece 7");
    };
    EXPECT_THROW(pool.run({.count = 200, .body = body, .node_of = &alternating}), std::runtime_error);
  }
  expect_each_once(pool, 100, &alternating);
}

TEST(NodePool, several_callers_and_calls_from_within_share_it) {
  NodePool pool(3, two_nodes(1, 2));
  std::atomic<int> sum = 0;
  const NodeOf node_of = [](std::uint64_t piece) { return static_cast<int>(piece % 3); };
  const auto work = [&] {
    const Body inner = [&](std::uint64_t) { ++sum; };
    const Body outer = [&](std::uint64_t) { pool.run({.count = 5, .body = inner, .node_of = &node_of}); };
    for (int i = 0; i < 20; ++i) pool.run({.count = 10, .body = outer, .node_of = &node_of});
  };
  std::thread other(work);
  work();
  other.join();
  EXPECT_EQ(sum, 2 * 20 * 10 * 5);
}

// In the order in which one thread of a home comes to them.
std::vector<std::uint64_t> order_for(std::size_t home) {
  std::vector<std::uint64_t> order;
  const PieceQueues::Body body = [&](std::uint64_t piece) { order.push_back(piece); };
  PieceQueues queues(9, body, 2, [](std::uint64_t piece) { return static_cast<std::size_t>(piece % 3); });
  queues.take_until_none(home);
  queues.wait();
  return order;
}

TEST(PieceQueues, own_pieces_come_first_then_those_without_a_home_then_those_of_others) {
  EXPECT_EQ(order_for(0), (std::vector<std::uint64_t>{0, 3, 6, 2, 5, 8, 1, 4, 7}));
  EXPECT_EQ(order_for(1), (std::vector<std::uint64_t>{1, 4, 7, 2, 5, 8, 0, 3, 6}));
}

TEST(PieceQueues, without_homes_each_taker_begins_with_the_same_part_whatever_its_size) {
  for (const std::uint64_t count : {1, 2, 3, 7, 8, 100}) {
    std::vector<std::uint64_t> all;
    for (std::size_t taker = 0; taker < 3; ++taker) {
      std::vector<std::uint64_t> order;
      const PieceQueues::Body body = [&](std::uint64_t piece) { order.push_back(piece); };
      PieceQueues queues(count, body, std::vector<std::uint64_t>(3, 1));
      queues.take_until_none(taker);
      queues.wait();
      ASSERT_EQ(order.size(), count);
      const std::uint64_t own = count / 3 + (taker < count % 3 ? 1 : 0);
      all.insert(all.end(), order.begin(), order.begin() + static_cast<std::ptrdiff_t>(own));
    }
    std::vector<std::uint64_t> in_order(count);
    std::iota(in_order.begin(), in_order.end(), std::uint64_t{0});
    EXPECT_EQ(all, in_order);
  }
}

// The pieces that home `home` begins with, of 16.
std::uint64_t own_pieces(std::size_t home, const std::vector<std::uint64_t>& weights) {
  std::vector<std::uint64_t> order;
  const PieceQueues::Body body = [&](std::uint64_t piece) { order.push_back(piece); };
  PieceQueues queues(16, body, weights);
  queues.take_until_none(home);
  queues.wait();
  std::uint64_t own = 1;
  while (own < order.size() && order[own] == order[own - 1] + 1) ++own;
  return own;
}

TEST(PieceQueues, without_homes_each_taker_begins_with_a_part_in_proportion_to_its_weight) {
  EXPECT_EQ(own_pieces(2, {3, 4, 1}), 2u);
  EXPECT_EQ(own_pieces(1, {2, 6}), 12u);
  EXPECT_EQ(own_pieces(1, {6, 2}), 4u);
}

// The one thread of the second node begins where the three quarters of the first one end. The others wait for
// it in their first piece.
TEST(NodePool, without_homes_nodes_have_pieces_in_proportion_to_their_threads) {
  const auto placement = two_nodes(3, 1);
  if (placement[0].cpus == placement[1].cpus) GTEST_SKIP() << "needs two CPUs to tell the nodes apart";
  NodePool pool(4, placement);
  std::atomic<std::int64_t> first = -1;  // of the second node
  const auto late = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  const Body body = [&](std::uint64_t piece) {
    std::int64_t none = -1;
    if (current_mask() == placement[1].cpus)
      first.compare_exchange_strong(none, static_cast<std::int64_t>(piece));
    while (first < 0 && std::chrono::steady_clock::now() < late) std::this_thread::yield();
  };
  pool.run({.count = 80, .body = body});
  if (first < 0) GTEST_SKIP() << "pools of other tests of this process leave the second node no thread";
  EXPECT_EQ(first, 60);
}

}  // namespace
}  // namespace headrace

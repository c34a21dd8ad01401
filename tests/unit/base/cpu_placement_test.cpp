#include "headrace/cpu_placement.h"

#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <set>

namespace headrace {
namespace {

std::vector<int> cpus(int first, int last) {
  std::vector<int> list(static_cast<std::size_t>(last - first + 1));
  std::iota(list.begin(), list.end(), first);
  return list;
}

// Limits of a rank that may use the CPUs of `affinity`.
CpuLimits limits_of(std::vector<int> affinity) {
  CpuLimits limits;
  limits.affinity_cpus = limits.host_cpus = static_cast<int>(affinity.size());
  limits.affinity = std::move(affinity);
  return limits;
}

CpuLimits limits_of_rank(std::vector<int> affinity, int rank, int ranks) {
  CpuLimits limits = limits_of(std::move(affinity));
  limits.local_rank = rank;
  limits.local_ranks = ranks;
  return limits;
}

// Node -> threads of the default pool on a machine as hwloc describes it.
std::map<int, int> threads_by_node(const std::string& machine, const CpuLimits& limits) {
  std::map<int, int> threads;
  for (const NodeThreads& home : place_threads(numa_nodes(machine), limits, threads_per_rank(limits)))
    threads[home.node] = home.threads;
  return threads;
}
using Threads = std::map<int, int>;

constexpr const char* two_nodes = "node:2 core:4 pu:1";  // CPUs 0-3 and 4-7

TEST(CpuPlacement, of_one_node_binds_nothing) {
  EXPECT_EQ(threads_by_node("node:1 core:8 pu:1", limits_of(cpus(0, 7))), Threads{});
  EXPECT_EQ(threads_by_node("core:8 pu:1", limits_of(cpus(0, 7))), Threads{});
}

TEST(CpuPlacement, of_two_nodes_is_half_on_each_bound_to_its_cpus) {
  const auto placement = place_threads(numa_nodes(two_nodes), limits_of(cpus(0, 7)), 8);
  EXPECT_EQ(placement, (std::vector<NodeThreads>{{.node = 0, .cpus = cpus(0, 3), .threads = 4},
                                                 {.node = 1, .cpus = cpus(4, 7), .threads = 4}}));
  EXPECT_EQ(describe(placement), "node 0: 4 threads, node 1: 4 threads");
  EXPECT_EQ(describe(std::vector<NodeThreads>{}), "");
}

TEST(CpuPlacement, of_uneven_nodes_is_in_proportion_to_their_cpus) {
  // CPUs 0-11, 12-13, 14-17 and 18-19.
  const std::vector<NumaNode> uneven = {{.index = 0, .cpus = "0-11", .memory_bytes = 1},
                                        {.index = 1, .cpus = "12-13", .memory_bytes = 1},
                                        {.index = 2, .cpus = "14-17", .memory_bytes = 1},
                                        {.index = 3, .cpus = "18,19", .memory_bytes = 1}};
  const auto threads = [&](int count) {
    std::vector<int> list(4);
    for (const NodeThreads& home : place_threads(uneven, limits_of(cpus(0, 19)), count))
      list[static_cast<std::size_t>(home.node)] = home.threads;
    return list;
  };
  EXPECT_EQ(threads(20), (std::vector<int>{12, 2, 4, 2}));
  EXPECT_EQ(threads(10), (std::vector<int>{6, 1, 2, 1}));
  EXPECT_EQ(threads(5), (std::vector<int>{3, 1, 1, 0}));  // 3.0, 0.5, 1.0, 0.5
  EXPECT_EQ(threads(1), (std::vector<int>{1, 0, 0, 0}));
  EXPECT_EQ(threads(40), (std::vector<int>{24, 4, 8, 4}));  // more than there are CPUs
}

TEST(CpuPlacement, counts_the_cpus_of_the_affinity_mask_alone) {
  EXPECT_EQ(threads_by_node(two_nodes, limits_of({0, 1, 4})), (Threads{{0, 2}, {1, 1}}));
  const auto placement = place_threads(numa_nodes(two_nodes), limits_of({1, 3, 6}), 3);
  EXPECT_EQ(placement.at(0).cpus, (std::vector<int>{1, 3}));
  EXPECT_EQ(placement.at(1).cpus, (std::vector<int>{6}));
  // A mask within one node binds already.
  EXPECT_EQ(threads_by_node(two_nodes, limits_of({4, 5})), Threads{});
}

TEST(CpuPlacement, divides_a_quota_below_the_cpus_among_the_nodes) {
  CpuLimits limits = limits_of(cpus(0, 7));
  limits.quota_cpus = 1.5;
  EXPECT_EQ(threads_by_node(two_nodes, limits), (Threads{{0, 1}, {1, 1}}));
  limits.quota_cpus = 1.0;
  EXPECT_EQ(threads_by_node(two_nodes, limits), (Threads{{0, 1}}));
  limits.quota_cpus = 5.0;
  EXPECT_EQ(threads_by_node(two_nodes, limits), (Threads{{0, 3}, {1, 2}}));
}

TEST(CpuPlacement, gives_three_ranks_of_two_nodes_neighbouring_parts) {
  constexpr const char* machine = "node:2 core:6 pu:1";
  EXPECT_EQ(threads_by_node(machine, limits_of_rank(cpus(0, 11), 0, 3)), (Threads{{0, 4}}));
  EXPECT_EQ(threads_by_node(machine, limits_of_rank(cpus(0, 11), 1, 3)), (Threads{{0, 2}, {1, 2}}));
  EXPECT_EQ(threads_by_node(machine, limits_of_rank(cpus(0, 11), 2, 3)), (Threads{{1, 4}}));
}

TEST(CpuPlacement, gives_every_rank_a_thread_where_there_are_more_ranks_than_cpus) {
  for (int rank = 0; rank < 5; ++rank) {
    const auto placement = place_threads(numa_nodes("node:2 pu:1"), limits_of_rank({0, 1}, rank, 5), 1);
    ASSERT_EQ(placement.size(), 1u) << rank;
    EXPECT_EQ(placement[0].threads, 1);
  }
}

TEST(CpuPlacement, does_not_cut_a_mask_that_the_launcher_gave_to_this_rank) {
  CpuLimits limits = limits_of_rank({2, 3, 4, 5}, 1, 2);
  limits.bound_by_launcher = true;
  limits.host_cpus = 8;
  EXPECT_EQ(threads_by_node(two_nodes, limits), (Threads{{0, 2}, {1, 2}}));
}

TEST(CpuPlacement, leaves_memory_without_cpus_alone) {
  // Two sockets, each with DRAM and HBM, and memory behind CXL that is local to all.
  const std::vector<NumaNode> nodes =
      numa_nodes("[numa(memory=64GB)] package:2 [numa(memory=8GB)] [numa(memory=2GB)] core:2 pu:1");
  ASSERT_EQ(nodes.size(), 5u);
  std::map<int, std::vector<int>> homes;
  for (const NodeThreads& home : place_threads(nodes, limits_of(cpus(0, 3)), 4)) homes[home.node] = home.cpus;
  ASSERT_EQ(homes.size(), 2u);
  EXPECT_EQ(homes.begin()->second, cpus(0, 1));
  EXPECT_EQ(homes.rbegin()->second, cpus(2, 3));
  const std::vector<NumaNode> bare = {{.index = 0, .cpus = "0-3", .memory_bytes = 1},
                                      {.index = 2, .cpus = "", .memory_bytes = 1}};
  EXPECT_EQ(place_threads(bare, limits_of(cpus(0, 3)), 4), std::vector<NodeThreads>{});
}

TEST(CpuPlacement, cpus_without_memory_of_their_own_work_and_hold_nothing) {
  const std::vector<NumaNode> nodes = {{.index = 0, .cpus = "0-1", .memory_bytes = 1},
                                       {.index = 1, .cpus = "2-3", .memory_bytes = 0}};
  const auto placement = place_threads(nodes, limits_of(cpus(0, 3)), 4);
  EXPECT_EQ(placement, (std::vector<NodeThreads>{{.node = 0, .cpus = {0, 1}, .threads = 2},
                                                 {.node = -1, .cpus = {2, 3}, .threads = 2}}));
  EXPECT_EQ(describe(placement), "node 0: 2 threads, no node: 2 threads");
  const std::vector<Bytes> blocks(4, 1000);
  EXPECT_EQ(deal_blocks(placement, blocks), (std::vector<NodeRun>{{.node = 0, .begin = 0, .end = 4000}}));
}

// CPU 1 of node 0 and CPU 3 of node 1 are offline.
constexpr const char* half_offline = R"(<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE topology SYSTEM "hwloc2.dtd">
<topology version="2.0">
  <object type="Machine" os_index="0" cpuset="0x00000005" complete_cpuset="0x0000000f" allowed_cpuset="0x00000005" nodeset="0x00000003" complete_nodeset="0x00000003" allowed_nodeset="0x00000003" gp_index="1">
    <object type="Package" os_index="0" cpuset="0x00000001" complete_cpuset="0x00000003" nodeset="0x00000001" complete_nodeset="0x00000001" gp_index="2">
      <object type="NUMANode" os_index="0" cpuset="0x00000001" complete_cpuset="0x00000003" nodeset="0x00000001" complete_nodeset="0x00000001" gp_index="3" local_memory="1073741824"/>
      <object type="PU" os_index="0" cpuset="0x00000001" complete_cpuset="0x00000001" nodeset="0x00000001" complete_nodeset="0x00000001" gp_index="4"/>
    </object>
    <object type="Package" os_index="1" cpuset="0x00000004" complete_cpuset="0x0000000c" nodeset="0x00000002" complete_nodeset="0x00000002" gp_index="5">
      <object type="NUMANode" os_index="1" cpuset="0x00000004" complete_cpuset="0x0000000c" nodeset="0x00000002" complete_nodeset="0x00000002" gp_index="6" local_memory="1073741824"/>
      <object type="PU" os_index="2" cpuset="0x00000004" complete_cpuset="0x00000004" nodeset="0x00000002" complete_nodeset="0x00000002" gp_index="7"/>
    </object>
  </object>
</topology>)";

TEST(CpuPlacement, never_binds_to_a_cpu_that_is_offline) {
  const std::vector<NumaNode> nodes = numa_nodes(half_offline);
  ASSERT_EQ(nodes.size(), 2u);
  const auto placement = place_threads(nodes, limits_of({0, 2}), 2);
  EXPECT_EQ(placement, (std::vector<NodeThreads>{{.node = 0, .cpus = {0}, .threads = 1},
                                                 {.node = 1, .cpus = {2}, .threads = 1}}));
}

TEST(CpuPlacement, of_a_machine_that_does_not_say_how_it_is_built_binds_nothing) {
  EXPECT_EQ(place_threads({}, limits_of(cpus(0, 7)), 8), std::vector<NodeThreads>{});
  EXPECT_EQ(place_threads(numa_nodes(two_nodes), CpuLimits{}, 8), std::vector<NodeThreads>{});
  EXPECT_EQ(numa_nodes("no machine").size(), 0u);
}

std::vector<NodeThreads> nodes_of(int first, int second) {
  return {{.node = 0, .cpus = {0}, .threads = first}, {.node = 4, .cpus = {1}, .threads = second}};
}

// Bytes of each node; the runs cover the blocks, whole and in order.
std::map<int, Bytes> bytes_by_node(const std::vector<NodeRun>& runs, const std::vector<Bytes>& blocks) {
  std::map<int, Bytes> bytes;
  std::set<Bytes> borders = {0};
  Bytes end = 0, next = 0;
  for (const Bytes block : blocks) borders.insert(end += block);
  for (const NodeRun& run : runs) {
    EXPECT_EQ(run.begin, next);
    EXPECT_TRUE(borders.contains(run.end)) << "a run ends within a block";
    bytes[run.node] += run.end - run.begin;
    next = run.end;
  }
  EXPECT_EQ(next, end);
  return bytes;
}

TEST(DealtBlocks, are_in_proportion_to_the_threads_whatever_their_number_and_the_turns) {
  const Bytes block = Bytes{3} << 20;
  for (const auto& [first, second] : {std::pair{1, 1}, {3, 1}, {1, 3}, {2, 5}, {12, 4}})
    for (const std::size_t count : {1, 2, 3, 5, 8, 24, 100, 999})
      for (const std::size_t turn : {0, 1, 2, 7, 16}) {
        std::vector<Bytes> blocks(count, block);
        blocks.back() = 77;
        auto bytes = bytes_by_node(deal_blocks(nodes_of(first, second), blocks, turn), blocks);
        const double share = static_cast<double>(bytes[0] + bytes[4]) * first / (first + second);
        EXPECT_NEAR(static_cast<double>(bytes[0]), share, static_cast<double>(block))
            << count << " blocks in turns of " << turn << ", threads " << first << " and " << second;
      }
}

TEST(DealtBlocks, of_eight_buffers_are_four_on_each_of_two_equal_nodes) {
  const std::vector<Bytes> buffers(8, Bytes{3} << 20);
  const auto bytes = bytes_by_node(deal_blocks(nodes_of(4, 4), buffers), buffers);
  EXPECT_EQ(bytes.at(0), bytes.at(4));
}

TEST(DealtBlocks, have_one_run_on_each_node_in_every_turn) {
  const std::vector<Bytes> blocks(10, 100);
  EXPECT_EQ(
      deal_blocks(nodes_of(1, 1), blocks),
      (std::vector<NodeRun>{{.node = 0, .begin = 0, .end = 500}, {.node = 4, .begin = 500, .end = 1000}}));
  EXPECT_EQ(deal_blocks(nodes_of(3, 1), blocks, 4),
            (std::vector<NodeRun>{{.node = 0, .begin = 0, .end = 300},
                                  {.node = 4, .begin = 300, .end = 400},
                                  {.node = 0, .begin = 400, .end = 700},
                                  {.node = 4, .begin = 700, .end = 800},
                                  {.node = 0, .begin = 800, .end = 1000}}));
  EXPECT_EQ(deal_blocks(nodes_of(1, 1), {}), std::vector<NodeRun>{});
  EXPECT_EQ(deal_blocks({}, blocks), std::vector<NodeRun>{});
}

TEST(DividedArray, has_a_part_for_each_thread_and_borders_between_pages) {
  const std::vector<NodeThreads> placement = {{.node = 2, .cpus = {0}, .threads = 1},
                                              {.node = -1, .cpus = {1}, .threads = 5},
                                              {.node = 3, .cpus = {2}, .threads = 2}};
  EXPECT_EQ(divide_array(placement, 3 * 4096 * 100 + 5),
            (std::vector<NodeRun>{{.node = 2, .begin = 0, .end = 4096 * 100},
                                  {.node = 3, .begin = 4096 * 100, .end = 3 * 4096 * 100 + 5}}));
  EXPECT_EQ(divide_array(placement, 100), (std::vector<NodeRun>{{.node = 3, .begin = 0, .end = 100}}));
  EXPECT_EQ(divide_array(placement, 0), std::vector<NodeRun>{});
  EXPECT_EQ(divide_array({}, 100), std::vector<NodeRun>{});
}

TEST(CpuList, is_read_as_the_kernel_writes_it) {
  EXPECT_EQ(cpus_of_list("0-2,8,10-11\n"), (std::vector<int>{0, 1, 2, 8, 10, 11}));
  EXPECT_EQ(cpus_of_list(""), std::vector<int>{});
}

}  // namespace
}  // namespace headrace

// On which NUMA nodes the threads of this rank's pool run, and which of them its memory is dealt to: pure
// functions over what hwloc and the limits of this rank say.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "headrace/bytes.h"
#include "headrace/locality.h"
#include "headrace/topology.h"

namespace headrace {

// Threads of one arena, bound to the CPUs of one node.
struct NodeThreads {
  int node = -1;          // the kernel's number; -1: CPUs without memory of their own
  std::vector<int> cpus;  // those of the node within the affinity mask
  int threads = 0;        // at least 1
  bool operator==(const NodeThreads&) const = default;
};

// The nodes of `threads` threads in proportion to this rank's CPUs on each. The CPUs of the affinity mask, in
// the order of the nodes, are cut into equal parts for the ranks of this host, unless the launcher has bound
// them; a rank's threads may run on any CPU of the mask that its nodes have. A CPU belongs to the nearest
// node that has memory. Empty where there is nothing to bind: the mask lies within one node, or the machine
// does not say how its memory lies.
std::vector<NodeThreads> place_threads(const std::vector<NumaNode>& nodes, const CpuLimits& limits,
                                       int threads);

// A range of memory on one node.
struct NodeRun {
  int node = -1;
  Bytes begin = 0, end = 0;
  bool operator==(const NodeRun&) const = default;
};
// Deals blocks that lie end to end to the nodes in proportion to their threads, whole, so that each is on one
// node: of every `turn_blocks` blocks (those that are updated together; 0: of all) each node has a run of
// neighbours, as long as can be, for only the huge pages at its ends may lie elsewhere. What turns give
// together is in proportion too, within about a block. Empty where no node has memory.
std::vector<NodeRun> deal_blocks(const std::vector<NodeThreads>& placement,
                                 std::span<const Bytes> block_bytes, std::size_t turn_blocks = 0);

// Divides one array, which threads update together, into a part for each node; borders between pages.
std::vector<NodeRun> divide_array(const std::vector<NodeThreads>& placement, Bytes bytes);

// "node 0: 4 threads, node 1: 4 threads"; empty where nothing is bound.
std::string describe(const std::vector<NodeThreads>& placement);

// "0-3,8" as numbers, in order.
std::vector<int> cpus_of_list(const std::string& list);

}  // namespace headrace

// Host memory dealt to the NUMA nodes that the pool's threads are bound to (cpu_pool.h), and where it lies.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "headrace/cpu_placement.h"

namespace headrace {

// Places ranges of `memory` by first touch and remembers until it is destroyed where the kernel put them, for
// node_of. The memory must be mapped, not touched before to be placed, and outlive this; what it holds is
// kept. Takes the time of the page faults, which threads of every node share. Without runs (deal_blocks and
// divide_array give none where the pool's threads are not bound) it does nothing.
class NodeMemory {
 public:
  NodeMemory() = default;
  NodeMemory(std::span<std::byte> memory, const std::vector<NodeRun>& runs);
  NodeMemory(NodeMemory&& other) noexcept;
  NodeMemory& operator=(NodeMemory&& other) noexcept;
  ~NodeMemory();

 private:
  void forget() noexcept;
  std::vector<const std::byte*> runs_;  // where those that are remembered start
};

// The node that placed memory lies on, -1 for any other. Any thread.
int node_of(const void* address);

}  // namespace headrace

// Host memory dealt to the NUMA nodes that the pool's threads are bound to (cpu_pool.h), and where it lies.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "headrace/bytes.h"

namespace headrace {

// Places `memory` by first touch (blocks that lie end to end from its start, as deal_blocks deals them) and
// remembers until it is destroyed where the kernel put it, for node_of. The memory must be mapped, not
// touched before to be placed, and outlive this; what it holds is kept. Takes the time of the page faults,
// which threads of every node share. Does nothing where the pool's threads are not bound to nodes.
class NodeMemory {
 public:
  NodeMemory() = default;
  NodeMemory(std::span<std::byte> memory, std::span<const Bytes> block_bytes);
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

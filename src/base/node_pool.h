// The threads behind cpu_pool.h: one oneTBB arena, or one for each NUMA node with its threads bound to the
// node's CPUs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "headrace/cpu_placement.h"

struct hwloc_bitmap_s;

namespace headrace {

// The pieces of one call as a value: how many, what each does, and where each is at home.
struct PieceWork {
  std::uint64_t count = 0;
  const std::function<void(std::uint64_t piece)>& body;
  const std::function<int(std::uint64_t piece)>* node_of = nullptr;  // -1: at home nowhere
};

class NodePool {
 public:
  // An empty placement: one arena whose threads are not bound. Otherwise its threads are as many as
  // `threads`.
  NodePool(int threads, std::vector<NodeThreads> placement);
  ~NodePool();
  NodePool(const NodePool&) = delete;
  NodePool& operator=(const NodePool&) = delete;

  int threads() const { return threads_; }
  const std::vector<NodeThreads>& placement() const { return placement_; }

  // Every piece once, on the calling thread and the pool's, and waits. A thread takes pieces of its node,
  // then those without a home, then those of nodes that have not come to them. Where nothing is said of
  // nodes, each thread (of a placement: each node, in proportion to its threads) begins with its own part of
  // them, the same in each call. A single piece is run by the calling thread as it is.
  // Rethrows the first error, after which pieces may be left out.
  void run(const PieceWork& work);

 private:
  struct Arenas;
  void run_alone(const PieceWork& work);
  bool called_from_inside() const;
  void run_unbound(const PieceWork& work);
  void run_bound(const PieceWork& work);

  const int threads_;
  const std::vector<NodeThreads> placement_;
  const std::unique_ptr<Arenas> arenas_;
};

// Binds the calling thread to the CPUs while it lives, where the kernel lets it; then as it was.
class BoundToCpus {
 public:
  explicit BoundToCpus(const std::vector<int>& cpus);
  ~BoundToCpus();
  BoundToCpus(const BoundToCpus&) = delete;
  BoundToCpus& operator=(const BoundToCpus&) = delete;

 private:
  hwloc_bitmap_s* before_ = nullptr;
};

}  // namespace headrace

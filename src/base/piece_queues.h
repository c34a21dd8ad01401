// The pieces of one parallel call in queues, one for each home (a thread or a node) and one for those at home
// nowhere; taken by whichever thread is free. Threads that come late find nothing left, also when the call is
// long over.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <span>
#include <vector>

namespace headrace {

class PieceQueues {
 public:
  using Body = std::function<void(std::uint64_t piece)>;
  // Neighbours share a home, and each has as many as its weight (of a node: its threads) says: a thread that
  // comes back finds in its caches what it had before. `body` must live until wait() has returned.
  PieceQueues(std::uint64_t count, const Body& body, std::span<const std::uint64_t> weights);
  // home_of(piece) < homes, or `homes` for nowhere.
  PieceQueues(std::uint64_t count, const Body& body, std::size_t homes,
              const std::function<std::size_t(std::uint64_t piece)>& home_of);

  // Runs pieces until none is left: those of `home`, then those at home nowhere, then the other homes'.
  void take_until_none(std::size_t home) noexcept;
  // Until every piece has been run, or left out after an error; rethrows the first error.
  void wait();

 private:
  struct alignas(64) Queue {  // a cache line each: every taker writes `next`
    std::uint64_t begin = 0, count = 0;
    std::atomic<std::uint64_t> next = 0;
  };
  void take_from(Queue& queue) noexcept;
  void give_up() noexcept;
  void done(std::uint64_t pieces) noexcept;

  const Body& body_;
  std::vector<std::uint64_t> order_;  // by home; empty: in their own order
  std::vector<Queue> queues_;         // of each home, then of nowhere
  std::atomic<std::uint64_t> left_;
  std::mutex mutex_;
  std::exception_ptr first_error_;
};

}  // namespace headrace

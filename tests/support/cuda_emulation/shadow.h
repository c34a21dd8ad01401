// The last accesses of each granule of a memory range, for finding accesses that nothing orders.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "support/cuda_emulation/clocks.h"

namespace cuda_emulation {

// Memory blocks of the project start on 64-byte borders, so that no two of them share a granule.
inline constexpr std::size_t granule_bytes = 64;

struct Granule {
  std::array<std::atomic<std::uint32_t>, actor_count> read{}, written{};
};

class Shadow {
 public:
  explicit Shadow(std::size_t bytes);
  ~Shadow() { release(); }
  Shadow(const Shadow&) = delete;
  Shadow& operator=(const Shadow&) = delete;
  // Notes the access and returns the actor of an earlier conflicting one that is not ordered before `moment`.
  struct Conflict {
    Actor actor;
    bool written;
  };
  std::optional<Conflict> access(std::size_t granule, bool write, const Moment& moment);
  std::size_t granules() const { return count_; }
  // Granules that were accessed, and others near them.
  std::vector<std::size_t> touched() const;
  // Of a range that is freed: nothing may access it any more.
  void release();
  bool released() const { return released_; }

 private:
  std::size_t count_;
  Granule* granules_;
  std::atomic<bool> released_{false};
};

}  // namespace cuda_emulation

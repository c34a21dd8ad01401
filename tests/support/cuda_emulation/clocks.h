// Vector clocks: which work is ordered before which, by stream order, events and host waits alone, whatever
// the timing of a run happened to be.
//
// Actor 0 is the host: every thread that is not a stream's. The others are streams. An actor's clock counts
// its pieces of work; a piece of work of actor a at time t is ordered before work whose clock holds at least
// t for a.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace cuda_emulation {

inline constexpr std::size_t actor_count = 16;
using Actor = std::uint8_t;
inline constexpr Actor host_actor = 0;

struct VectorClock {
  std::array<std::uint32_t, actor_count> time{};
  void join(const VectorClock& other) {
    for (std::size_t a = 0; a < actor_count; ++a)
      if (other.time[a] > time[a]) time[a] = other.time[a];
  }
  bool covers(Actor actor, std::uint32_t at) const { return time[actor] >= at; }
};

// A piece of work in the clocks' terms.
struct Moment {
  Actor actor = host_actor;
  std::uint32_t at = 0;
  VectorClock before;  // what is ordered before it, itself included
  const char* name = "";
};

}  // namespace cuda_emulation

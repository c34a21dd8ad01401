// What a lane did and how long it waited for others, from the times of its own events: the lane's life is cut
// into intervals by markers on its stream, each of one kind. A busy interval ends when another lane is given
// an event or the lane waits; it includes the gaps in which the host had not enqueued the next piece of work
// yet.
#pragma once

#include <deque>
#include <optional>

#include "gpu/event_pool.h"

namespace headrace {

class LaneClock {
 public:
  LaneClock(Lane lane, EventPool& pool) : lane_(lane), pool_(pool) {}

  // What the lane does from here on.
  void busy(cudaStream_t stream);
  void stalled_on(Lane other, cudaStream_t stream);
  // Also the event for others to wait for; null when the device has failed (status()).
  std::shared_ptr<EventPool::Recorded> idle(cudaStream_t stream);

  // Adds up the intervals that are over. Cheap when there are none.
  void harvest();
  // Markers that the stream has passed, of all so far.
  std::uint64_t passed() const { return passed_; }
  std::uint64_t marked() const { return passed_ + pending_.size(); }
  LaneTimes& times() { return times_; }
  // Of the last marker.
  cudaError_t status() const { return status_; }

 private:
  enum class Kind : std::uint8_t { idle, busy, stalled };
  struct Marker {
    std::shared_ptr<EventPool::Recorded> at;
    Kind kind = Kind::idle;  // of the interval that begins here
    Lane on = Lane::compute;
  };
  std::shared_ptr<EventPool::Recorded> mark(Marker marker, cudaStream_t stream);
  void add(const Marker& from, double seconds);

  Lane lane_;
  EventPool& pool_;
  Kind now_ = Kind::idle;
  std::deque<Marker> pending_;
  std::optional<Marker> last_passed_;
  std::uint64_t passed_ = 0;
  cudaError_t status_ = cudaSuccess;
  LaneTimes times_;
};

}  // namespace headrace

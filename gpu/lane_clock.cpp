#include "gpu/lane_clock.h"

namespace headrace {

std::shared_ptr<EventPool::Recorded> LaneClock::mark(Marker marker, cudaStream_t stream) {
  constexpr std::size_t many = 256;  // markers that nobody has asked about: look which are over
  if (pending_.size() >= many) harvest();
  marker.at = pool_.record(lane_, stream, &status_);
  now_ = marker.kind;
  auto at = marker.at;
  if (at) pending_.push_back(std::move(marker));
  return at;
}

void LaneClock::busy(cudaStream_t stream) {
  if (now_ != Kind::busy) mark({nullptr, Kind::busy, lane_}, stream);
}

void LaneClock::stalled_on(Lane other, cudaStream_t stream) {
  mark({nullptr, Kind::stalled, other}, stream);
}

std::shared_ptr<EventPool::Recorded> LaneClock::idle(cudaStream_t stream) {
  return mark({nullptr, Kind::idle, lane_}, stream);
}

void LaneClock::harvest() {
  while (!pending_.empty() && cudaEventQuery(pending_.front().at->get()) == cudaSuccess) {
    Marker marker = std::move(pending_.front());
    pending_.pop_front();
    float milliseconds = 0;
    if (last_passed_ && last_passed_->kind != Kind::idle &&
        cudaEventElapsedTime(&milliseconds, last_passed_->at->get(), marker.at->get()) == cudaSuccess)
      add(*last_passed_, static_cast<double>(milliseconds) * 1e-3);
    last_passed_ = std::move(marker);
    ++passed_;
  }
}

void LaneClock::add(const Marker& from, double seconds) {
  if (from.kind == Kind::busy) times_.busy_seconds += seconds;
  if (from.kind == Kind::stalled) times_.stalled_seconds[static_cast<std::size_t>(from.on)] += seconds;
}

}  // namespace headrace

#include "aio/io_path.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <thread>

namespace headrace::aio {

IoPath::IoPath(const RequestHook& hook)
    : hook_(hook), delayed_([this](const Request& request) {
        report(request, -EAGAIN);
        issue_queued();
      }) {}

void IoPath::wait_any(std::span<Job* const> jobs) {
  while (!any_finished(jobs)) std::this_thread::sleep_for(until_looking_again);
}

std::int64_t IoPath::admit(const Request& request) const {
  const Bytes bytes = request.piece.bytes;
  return hook_ ? hook_(request.operation->direction, request.offset(), bytes)
               : static_cast<std::int64_t>(bytes);
}

void IoPath::complete(const Request& request, std::int64_t result) {
  if (result == -EAGAIN) {
    const auto pause = std::chrono::microseconds(100) * std::min(request.piece.again + 1, 10u);
    if (delayed_.add(request, pause)) return;
    std::this_thread::sleep_for(pause);
  }
  report(request, result);
}

void IoPath::report(const Request& request, std::int64_t result) {
  if (queue_.complete(request, result)) request.operation->ended();
}

}  // namespace headrace::aio

// The ring itself: set-up with the best flags the kernel knows, and the system call. Used by the one thread
// of the engine.
#pragma once

#include <liburing.h>

#include <cstdint>

#include "headrace/owned.h"

namespace headrace::aio {

class Uring {
 public:
  // Throws UringRefused.
  explicit Uring(std::uint32_t entries);
  ~Uring();
  Uring(const Uring&) = delete;
  Uring& operator=(const Uring&) = delete;

  // Makes the calling thread the one that submits. Before anything else.
  void attach_to_this_thread();
  // There is always room for `entries` between two calls of submit_and_wait.
  io_uring_sqe* next_sqe();
  // Submits, and blocks until at least one completion is there.
  void submit_and_wait();
  // Calls handle(user_data, result) for each completion.
  template <class Handle>
  void reap(Handle handle);

 private:
  int set_up(std::uint32_t entries, unsigned flags);
  int try_set_up(std::uint32_t entries, unsigned flags);

  io_uring ring_{};
  bool starts_disabled_ = false;
};

template <class Handle>
void Uring::reap(Handle handle) {
  io_uring_cqe* cqe = nullptr;
  while (io_uring_peek_cqe(&ring_, &cqe) == 0) {
    const std::uint64_t user_data = cqe->user_data;
    const std::int32_t result = cqe->res;
    io_uring_cqe_seen(&ring_, cqe);
    handle(user_data, result);
  }
}

}  // namespace headrace::aio

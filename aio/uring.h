// The ring itself: set-up with the best flags the kernel knows, system calls, and the tables of files and
// memory. The owner serialises the calls, but for wait_events and the updates of tables.
#pragma once

#include <liburing.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "headrace/bytes.h"

namespace headrace::aio {

class Uring {
 public:
  struct Options {
    std::uint32_t entries = 1;
    bool poll_completions = false, poll_submissions = false;
  };
  static constexpr std::uint32_t file_places = 256, buffer_places = 1024;
  static constexpr Bytes max_buffer_bytes = Bytes{1} << 30;  // the kernel's, for one place

  explicit Uring(const Options& options);  // throws UringRefused
  ~Uring();
  Uring(const Uring&) = delete;
  Uring& operator=(const Uring&) = delete;

  // One empty request through the ring: throws UringRefused where a filter lets rings be made, not be used.
  void try_out();
  // One empty request, the ring's first, by way of a thread of the kernel, as for what blocks: 0, ECANCELED
  // where none could be started, or ETIMEDOUT. Throws UringRefused. Kernels before 5.11 keep no time.
  int try_worker(std::chrono::milliseconds at_most);
  // The file, opened for direct I/O, can be read by polling. No ring, or no memory, to try it with: it
  // cannot.
  static bool can_poll(int fd, Bytes alignment);
  // There is room for `entries` requests in flight.
  io_uring_sqe* next_sqe();
  // Passes on what next_sqe() gave. What the kernel does not take now, short of memory, stays for the next
  // call: unsubmitted(). Returns an errno value when the ring can no longer be used.
  int submit();
  bool unsubmitted() const;
  // Takes back what the kernel has not taken, when it will not: the user_data of each.
  std::vector<std::uint64_t> withdraw();
  // Calls handle(user_data, result) for each completion that is there.
  template <class Handle>
  void reap(Handle handle);

  // Blocks until `count` completions are there, a signal comes or, where the kernel can (bounded_waits), the
  // time is over. Returns an errno value when the ring can no longer be used. Any thread, beside other calls.
  int wait_events(std::uint32_t count, std::chrono::nanoseconds at_most);
  bool bounded_waits() const { return !polls_ && (ring_.features & IORING_FEAT_EXT_ARG) != 0; }

  // Places of the tables (none where the kernel is too old for sparse tables). Any thread, beside other
  // calls; requests in flight keep what they use. Return errno values.
  bool has_file_table() const { return has_file_table_; }
  bool has_buffer_table() const { return has_buffer_table_; }
  int set_file(std::uint32_t place, int fd);  // -1: none
  int set_buffer(std::uint32_t place, std::span<std::byte> memory);

 private:
  int set_up(const Options& options);
  int try_set_up(const Options& options);
  static unsigned places_of(const Options& options);
  template <class GoOn>
  std::optional<int> answer_to_only_request(GoOn go_on);

  io_uring ring_{};
  bool passed_on_ = true;  // all that next_sqe() gave
  bool polls_ = false, has_file_table_ = false, has_buffer_table_ = false;
};

template <class Handle>
void Uring::reap(Handle handle) {
  if (polls_) io_uring_get_events(&ring_);
  io_uring_cqe* cqe = nullptr;
  while (io_uring_peek_cqe(&ring_, &cqe) == 0) {
    const std::uint64_t user_data = cqe->user_data;
    const std::int32_t result = cqe->res;
    io_uring_cqe_seen(&ring_, cqe);
    handle(user_data, result);
  }
}

}  // namespace headrace::aio

// One submitted transfer and its outcome, shared by its ticket and by the operations that carry out its
// parts.
//
// The lease stays with the ticket: the last operation may be dropped after the ticket has gone, when the pool
// of the buffer may have gone too. Nothing touches the buffer once finished() is true.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <span>

#include "headrace/io_engine.h"

namespace headrace::aio {

class Job {
 public:
  static constexpr std::size_t max_parts = 3;  // head, middle, tail
  using AtEnd = std::function<void(Job&)>;

  // `at_end` is called once, with the result, on the thread that ends the last part. It has to see to
  // announce(), then or later.
  Job(IoDirection direction, IoFile::Id file, std::uint64_t offset, Bytes bytes, AtEnd at_end);
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  // All parts, in the order of the file, before any of them ends.
  std::size_t add_part(Bytes bytes);
  // Of the part's bytes, those known to be good from its start, and an errno value. Any thread.
  void end_part(std::size_t part, IoResult result);
  // A job of zero bytes has no part.
  void end_empty() { finish(); }
  // By whom `at_end` leaves it to: the job is finished, and with it go the caller's memory and, maybe, the
  // engine.
  void announce();
  void fail(int code) { result_.code = code; }  // before that

  bool finished() const { return signal_.load(std::memory_order_acquire) == done; }
  const IoResult& result() const { return result_; }  // when finished, and for `at_end`
  IoDirection direction() const { return direction_; }
  IoFile::Id file() const { return file_; }
  Bytes bytes() const { return bytes_; }
  std::uint64_t offset() const { return offset_; }

  // Sleeps until the job is finished or call() asks its waiter for help. One waiter.
  void sleep();
  // False when the job is finished already. Any thread.
  bool call();

  std::uint32_t requests_in_flight = 0;  // under the lock of the path
  bool tracked = false;                  // by FileEnds, from before its start
  bool overran = false;                  // under the lock of FileEnds

 private:
  enum Signal : std::uint32_t { pending, done, called };
  struct Part {
    Bytes bytes = 0;
    IoResult result;
  };
  IoResult summed_up() const;
  void finish();

  const IoDirection direction_;
  const IoFile::Id file_;
  const std::uint64_t offset_;
  const Bytes bytes_;
  const AtEnd at_end_;
  std::array<Part, max_parts> parts_;
  std::size_t part_count_ = 0;
  std::atomic<std::size_t> ended_parts_{0};
  IoResult result_;
  std::atomic<std::uint32_t> signal_{pending};
};

bool any_finished(std::span<Job* const> jobs);
// How long to sleep between two looks where nothing wakes a thread for any of several jobs.
inline constexpr std::chrono::microseconds until_looking_again{50};

}  // namespace headrace::aio

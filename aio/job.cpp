#include "aio/job.h"

#include <algorithm>

#include "headrace/errors.h"

namespace headrace::aio {

Job::Job(IoDirection direction, IoFile::Id file, std::uint64_t offset, Bytes bytes, AtEnd at_end)
    : direction_(direction), file_(file), offset_(offset), bytes_(bytes), at_end_(std::move(at_end)) {}

std::size_t Job::add_part(Bytes bytes) {
  HEADRACE_CHECK(part_count_ < max_parts, "a transfer of more than {} parts", max_parts);
  parts_[part_count_].bytes = bytes;
  return part_count_++;
}

void Job::end_part(std::size_t part, IoResult result) {
  parts_[part].result = result;
  if (ended_parts_.fetch_add(1, std::memory_order_acq_rel) + 1 == part_count_) finish();
}

// What is good ends with the first part that is not whole.
IoResult Job::summed_up() const {
  IoResult sum;
  for (std::size_t part = 0; part < part_count_; ++part) {
    sum.bytes += parts_[part].result.bytes;
    sum.code = parts_[part].result.code;
    if (!sum.ok()) break;
  }
  return sum;
}

void Job::finish() {
  result_ = summed_up();
  at_end_(*this);
}

void Job::announce() {
  signal_.store(done, std::memory_order_release);
  signal_.notify_one();
}

void Job::sleep() {
  signal_.wait(pending, std::memory_order_acquire);
  std::uint32_t seen = called;
  signal_.compare_exchange_strong(seen, pending, std::memory_order_acquire);
}

bool Job::call() {
  std::uint32_t seen = pending;
  if (!signal_.compare_exchange_strong(seen, called, std::memory_order_acq_rel)) return seen == called;
  signal_.notify_one();
  return true;
}

bool any_finished(std::span<Job* const> jobs) {
  return std::ranges::any_of(jobs, [](const Job* job) { return job->finished(); });
}

}  // namespace headrace::aio

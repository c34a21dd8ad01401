#include "aio/uring_path.h"

#include <fmt/format.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <system_error>
#include <utility>

#include "aio/blocking_request.h"
#include "aio/engine_thread.h"
#include "headrace/log.h"

namespace headrace::aio {

UringPath::UringPath(const Uring::Options& options, Bytes in_flight_bytes, const RequestHook& hook)
    : IoPath(hook), ring_(options), slots_(options.entries), max_bytes_in_flight_(in_flight_bytes) {
  driver_outcomes_.reserve(2 * std::size_t{options.entries});
  for (std::uint32_t slot = options.entries; slot > 0; --slot) free_slots_.push_back(slot - 1);
}

UringPath::~UringPath() {
  stop_retrying();
  if (!pump_.joinable()) return;
  {
    const Lock lock(mutex_);
    stopping_ = true;
  }
  pump_needed_.notify_one();
  pump_.join();
}

void UringPath::add(std::shared_ptr<Operation> operation, bool may_keep_back) {
  queue_.add(std::move(operation));
  if (!may_keep_back || !keep_back()) issue_queued();
}

// Of a part of the depth: the device has the others to do meanwhile.
bool UringPath::keep_back() {
  constexpr std::size_t part = 4;
  return ++kept_back_ < slots_.size() / part;
}

void UringPath::issue_kept_back() {
  if (kept_back_ > 0) issue_queued();
}

void UringPath::issue_queued() {
  Lock lock(mutex_);
  kept_back_ = 0;
  Outcomes at_once;
  do {
    settle(lock, at_once);
    issue_ready(at_once);
  } while (!at_once.empty());
  if (!driven_) pass_on();
}

void UringPath::wait(Job& job) {
  issue_kept_back();
  Lock lock(mutex_);
  while (!job.finished()) {
    if (!driven_ && in_flight()) {
      drive(lock, &job, [&job] { return job.finished(); });
      continue;
    }
    sleepers_.push_back(&job);
    lock.unlock();
    job.sleep();
    lock.lock();
    std::erase(sleepers_, &job);
  }
  if (!driven_) pass_on();
}

// Sleepers are called for one job: where another thread drives, who waits for several looks now and then.
void UringPath::wait_any(std::span<Job* const> jobs) {
  issue_kept_back();
  Lock lock(mutex_);
  while (!any_finished(jobs)) {
    if (!driven_ && in_flight()) {
      drive(lock, nullptr, [jobs] { return any_finished(jobs); });
      continue;
    }
    lock.unlock();
    std::this_thread::sleep_for(until_looking_again);
    lock.lock();
  }
  if (!driven_) pass_on();
}

// The one thread that drives, until the end of the scope; whatever ends it, another can follow.
class UringPath::Driving {
 public:
  Driving(UringPath& path, Lock& lock) : path_(path), lock_(lock) { path_.driven_ = true; }
  Driving(const Driving&) = delete;
  Driving& operator=(const Driving&) = delete;
  ~Driving() {
    if (!lock_.owns_lock()) lock_.lock();
    path_.driven_ = false;
    path_.pass_on();
  }

 private:
  UringPath& path_;
  Lock& lock_;
};

void UringPath::poll() {
  issue_kept_back();
  Lock lock(mutex_);
  if (driven_) return;
  const Driving driving(*this, lock);
  advance(lock);
}

// Until that is enough, or nothing is in flight. `own`: the one job that is waited for.
template <class Enough>
void UringPath::drive(Lock& lock, const Job* own, Enough enough) {
  const Driving driving(*this, lock);
  while (true) {
    advance(lock);
    if (enough() || !in_flight()) break;
    await_events(lock, events_to_await(own));
  }
}

// All that can be done without waiting.
void UringPath::advance(Lock& lock) {
  do {
    settle(lock, driver_outcomes_);
    reap(driver_outcomes_);
    issue_ready(driver_outcomes_);
  } while (!driver_outcomes_.empty());
}

void UringPath::reap(Outcomes& ended) {
  ring_.reap([&](std::uint64_t index, std::int32_t result) { end_slot(index, result, ended); });
}

// Memory whose registration ended before the kernel looked at the request is asked for again by its address.
// What cannot be done at once, by a file system that may not know such requests at all, is asked for by a
// call that blocks.
void UringPath::end_slot(std::uint64_t index, std::int64_t result, Outcomes& ended) {
  Slot& slot = slots_[index];
  --slot.request.operation->job->requests_in_flight;
  bytes_in_flight_ -= slot.request.piece.bytes;
  if (slot.registered && result > 0) registered_bytes_ += static_cast<Bytes>(result);
  if (slot.registered && result == -EFAULT) {
    slot.request.piece.unregistered = true;
    result = -EINTR;
  }
  if (slot.at_once && (result == -EAGAIN || result == -EOPNOTSUPP)) {
    slot.request.piece.blocking = true;
    result = -EINTR;
  }
  free_slots_.push_back(static_cast<std::uint32_t>(index));
  ended.push_back({std::move(slot.request), result, std::exchange(slot.bounce, nullptr)});
}

// A ring that cannot be used any more fails what it has not taken; what it has may still move bytes, and ends
// with its completion.
void UringPath::submit(Outcomes& failed) {
  if (!ring_.unsubmitted()) return;
  if (broken_ == 0) broken_ = ring_.submit();
  if (broken_ == 0) return;
  for (const std::uint64_t index : ring_.withdraw()) end_slot(index, -broken_, failed);
}

// Copies, blocks where that was found necessary, and reports; what that starts may come back here by way of
// add().
void UringPath::settle(Lock& lock, Outcomes& outcomes) {
  if (outcomes.empty()) return;
  lock.unlock();
  for (Outcome& outcome : outcomes) {
    const Request& request = outcome.request;
    const bool read = request.operation->direction == IoDirection::read;
    if (outcome.to_be_moved > 0)
      outcome.result = carry_out(request, outcome.bounce != nullptr ? outcome.bounce : request.address(),
                                 outcome.to_be_moved);
    else if (outcome.bounce != nullptr && read && outcome.result > 0)
      std::memcpy(request.address(), outcome.bounce, static_cast<std::size_t>(outcome.result));
    complete(request, outcome.result);
  }
  lock.lock();
  for (const Outcome& outcome : outcomes)
    if (outcome.bounce != nullptr) bounces_.give_back(outcome.bounce);
  outcomes.clear();
}

// Of requests that block it hands out one: the others' completions are looked at before the next.
void UringPath::issue_ready(Outcomes& at_once) {
  bool blocks = false;
  while (!blocks && !free_slots_.empty() && bytes_in_flight_ < max_bytes_in_flight_ &&
         at_once.size() < slots_.size() * 2) {
    auto request = queue_.try_next(!bounces_.empty());
    if (!request) break;
    const std::int64_t admitted = broken_ != 0 ? -broken_ : admit(*request);
    blocks = admitted > 0 && has_to_block(request->piece);
    if (admitted <= 0)
      at_once.push_back({std::move(*request), admitted});
    else if (blocks)
      at_once.push_back(by_blocking(std::move(*request), static_cast<Bytes>(admitted)));
    else
      issue(std::move(*request), static_cast<Bytes>(admitted));
  }
  submit(at_once);
}

// [Note: cancelled] in transfer.h. Once the kernel was found without threads, it is believed at once.
bool UringPath::has_to_block(const Piece& piece) {
  constexpr std::chrono::seconds until_tried_again{10};
  const bool known = no_workers_until_ != Clock::time_point{};
  if (piece.blocking) return true;
  if (piece.cancelled < (known ? 1 : Transfer::max_cancelled)) return false;
  no_workers_until_ = Clock::now() + until_tried_again;
  warn_once(
      "no workers of the kernel",
      "The kernel cannot start the threads that it needs for transfers that block (a write that makes a "
      "file longer, for one): whoever waits for a transfer makes these one by one, which is slower. Raise "
      "the limit of threads (ulimit -u, pids.max).");
  return true;
}

bool UringPath::lacks_workers() const {
  return no_workers_until_ != Clock::time_point{} && Clock::now() < no_workers_until_;
}

UringPath::Outcome UringPath::by_blocking(Request request, Bytes bytes) {
  std::byte* const bounce = request.operation->bounced ? bounces_.take() : nullptr;
  return {.request = std::move(request), .bounce = bounce, .to_be_moved = bytes};
}

void UringPath::issue(Request request, Bytes bytes) {
  const std::uint32_t index = free_slots_.back();
  free_slots_.pop_back();
  Slot& slot = slots_[index];
  slot.request = std::move(request);
  ++slot.request.operation->job->requests_in_flight;
  bytes_in_flight_ += slot.request.piece.bytes;
  io_uring_sqe* sqe = ring_.next_sqe();
  prepare(sqe, slot, bytes);
  io_uring_sqe_set_data64(sqe, index);
}

void UringPath::prepare(io_uring_sqe* sqe, Slot& slot, Bytes bytes) {
  const Operation& operation = *slot.request.operation;
  const bool read = operation.direction == IoDirection::read;
  const auto length = static_cast<unsigned>(bytes);
  const std::uint64_t offset = slot.request.offset();
  std::byte* address = slot.request.address();
  if (operation.bounced) {
    slot.bounce = bounces_.take();
    if (!read) std::memcpy(slot.bounce, address, bytes);
    address = slot.bounce;
  }
  const int place = slot.request.piece.unregistered ? -1 : memory_.place_of(address, bytes);
  const bool fixed_memory = place >= 0;
  slot.registered = fixed_memory && !operation.bounced;
  const bool fixed_file = operation.fixed_file >= 0;
  const int file = fixed_file ? operation.fixed_file : operation.fd;
  if (fixed_memory && read)
    io_uring_prep_read_fixed(sqe, file, address, length, offset, place);
  else if (fixed_memory)
    io_uring_prep_write_fixed(sqe, file, address, length, offset, place);
  else if (read)
    io_uring_prep_read(sqe, file, address, length, offset);
  else
    io_uring_prep_write(sqe, file, address, length, offset);
  if (fixed_file) sqe->flags |= IOSQE_FIXED_FILE;
  slot.at_once = lacks_workers();
  if (slot.at_once)
    sqe->rw_flags = RWF_NOWAIT;  // or the kernel would look for a worker, and take its time to find none
  else if (slot.request.piece.again > 0)
    sqe->flags |= IOSQE_ASYNC;  // a worker of the kernel may block where we may not
}

// A transfer is not whole before each of its requests has ended: as many completions as that can be slept
// through, when nobody else needs one of them sooner. Who comes later is noticed when the sleep's time is
// over.
std::uint32_t UringPath::events_to_await(const Job* own) const {
  if (own == nullptr || !sleepers_.empty() || !queue_.empty() || !ring_.bounded_waits()) return 1;
  const auto half = static_cast<std::uint32_t>(slots_.size() / 2);
  return std::max(std::min(own->requests_in_flight, half), 1u);
}

void UringPath::await_events(Lock& lock, std::uint32_t count) {
  constexpr std::chrono::microseconds pause{100};
  constexpr std::chrono::milliseconds until_looking_for_others{1}, long_enough{1000};
  const bool refused = ring_.unsubmitted() || broken_ != 0;  // the kernel was short of memory, or forbids it
  int code = 0;
  lock.unlock();
  if (refused)
    std::this_thread::sleep_for(pause);
  else
    code = ring_.wait_events(count, count > 1 ? until_looking_for_others : long_enough);
  lock.lock();
  if (broken_ == 0) broken_ = code;
}

// Nobody drives: who is to, of those who need it?
void UringPath::pass_on() {
  while (!sleepers_.empty() && in_flight()) {
    Job* next = sleepers_.front();
    sleepers_.pop_front();
    if (next->call()) return;
  }
  if (!queue_.empty()) wake_pump();
}

// Without the thread, what is queued goes on when someone waits.
void UringPath::wake_pump() {
  try {
    if (!pump_.joinable()) pump_ = start_engine_thread([this] { pump(); });
    pump_needed_.notify_one();
  } catch (const std::system_error& refusal) {
    warn_once("no I/O thread",
              fmt::format("A thread of the I/O engine was refused ({}): transfers go on only "
                          "while someone waits for one. Raise the limit of threads "
                          "(ulimit -u, pids.max).",
                          refusal.what()));
  }
}

void UringPath::pump() {
  Lock lock(mutex_);
  while (!stopping_) {
    if (!driven_ && !queue_.empty() && in_flight())
      drive(lock, nullptr, [this] { return queue_.empty(); });
    else
      pump_needed_.wait(lock);
  }
}

void UringPath::prepare_to_bounce() {
  std::call_once(bounces_made_, [this] {
    constexpr RegionId no_region = 0;  // of a caller
    const auto count = std::min(static_cast<std::uint32_t>(slots_.size()), max_bounces);
    memory_.add(no_region, bounces_.allocate(count, bounce_bytes));
    const Lock lock(mutex_);
    bounces_.publish();
  });
}

int UringPath::fix_file(const IoFile& file) {
  return files_.place_of(file, {shared_from_this(), &files_});
}

}  // namespace headrace::aio

#include "gpu/nccl_watchdog.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "gpu/nccl_status.h"

namespace headrace {

std::string NcclOperation::text() const {
  return fmt::format("{} #{} of \"{}\"", name, sequence, label);
}

NcclWatchdog::NcclWatchdog(int rank, double timeout_seconds)
    : rank_(rank), timeout_seconds_(timeout_seconds) {
  cudaGetDevice(&device_);
  thread_ = std::thread([this] { watch(); });
}

NcclWatchdog::~NcclWatchdog() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void NcclWatchdog::set_communicator(ncclComm_t communicator) {
  const std::lock_guard lock(mutex_);
  communicator_ = communicator;
}

void NcclWatchdog::begins(const NcclOperation& operation, cudaStream_t stream) {
  auto start = stream == nullptr ? nullptr : events_->record(Lane::communicate, stream);
  const std::lock_guard lock(mutex_);
  call_ = {operation, Clock::now(), stream, std::move(start)};
}

void NcclWatchdog::ends() {
  // No event: the device has failed, which its next wait says better.
  auto end = call_->start ? events_->record(Lane::communicate, call_->stream) : nullptr;
  const std::lock_guard lock(mutex_);
  if (end) enqueued_.push_back({std::move(call_->operation), std::move(call_->start), std::move(end), {}});
  call_.reset();
}

// A part of it may be under way: it is watched as if all of it were, or unwinding could wait for ever.
void NcclWatchdog::fails() {
  if (call_->start) return ends();
  const std::lock_guard lock(mutex_);
  call_.reset();
}

void NcclWatchdog::watch() {
  // A new thread is on the first device, where a call would make a context that nothing needs.
  if (int current = 0; cudaGetDevice(&current) != cudaSuccess || current != device_) cudaSetDevice(device_);
  const auto interval = std::chrono::duration<double>(std::clamp(timeout_seconds_ / 10, 0.001, 0.1));
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, interval, [this] { return stopping_; })) {
    if (call_) require_in_time(call_->operation, call_->since);
    check_stream();
  }
}

void NcclWatchdog::check_stream() {
  while (!enqueued_.empty()) {
    Enqueued& first = enqueued_.front();
    if (cudaEventQuery(first.end->get()) == cudaErrorNotReady) {
      check_communicator(first.operation);
      if (first.started)
        require_in_time(first.operation, *first.started);
      else if (cudaEventQuery(first.start->get()) == cudaSuccess)
        first.started = Clock::now();
      return;
    }
    enqueued_.pop_front();  // it has ended, or the device has failed
  }
}

void NcclWatchdog::check_communicator(const NcclOperation& operation) const {
  ncclResult_t error = ncclSuccess;
  if (communicator_ == nullptr || ncclCommGetAsyncError(communicator_, &error) != ncclSuccess) return;
  if (error == ncclSuccess || error == ncclInProgress) return;
  end_job(fmt::format("failed in {}: {}", operation.text(), nccl_error_text(error, communicator_)));
}

void NcclWatchdog::require_in_time(const NcclOperation& operation, Clock::time_point since) const {
  if (Clock::now() - since < std::chrono::duration<double>(timeout_seconds_)) return;
  end_job(fmt::format(
      "waited {:.3g} s in {}: another rank is dead or took a different path. Raise --timeout if the "
      "ranks are only slow",
      timeout_seconds_, operation.text()));
}

// The launcher ends the other ranks. [Note: no abort]
void NcclWatchdog::end_job(const std::string& what) const {
  const std::string line = fmt::format("headrace: rank {} {}. The job ends.\n", rank_, what);
  std::fputs(line.c_str(), stderr);
  std::fflush(nullptr);
  std::_Exit(1);
}

}  // namespace headrace

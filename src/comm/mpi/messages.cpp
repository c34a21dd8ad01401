#include "src/comm/mpi/messages.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "src/comm/mpi/mpi_world.h"

namespace headrace {
namespace {

constexpr Bytes largest_message_bytes = Bytes{1} << 30;  // MPI's counts are int

// Calls start(data, count) for each piece that fits one message.
template <class Byte, class Start>
void each_message(Byte* data, Bytes bytes, const Start& start) {
  for (Bytes done = 0; done < bytes; done += largest_message_bytes)
    start(data + done, static_cast<int>(std::min(largest_message_bytes, bytes - done)));
}

[[noreturn]] void end_operation(const Operation& operation, std::string_view what) {
  end_job(fmt::format("{} #{} of \"{}\" {}", operation.name, operation.sequence, operation.label, what));
}

void check(int result, const Operation& operation) {
  if (result != MPI_SUCCESS) end_operation(operation, fmt::format("failed: {}", mpi_error_text(result)));
}

}  // namespace

void Messages::send(int to, const void* data, Bytes bytes) {
  each_message(static_cast<const std::byte*>(data), bytes, [&](const std::byte* piece, int count) {
    requests_.push_back(MPI_REQUEST_NULL);
    expected_bytes_.push_back(-1);
    const MpiTurn turn;
    check(MPI_Isend(piece, count, MPI_BYTE, to, tag(), comm_, &requests_.back()), operation_);
  });
}

void Messages::receive(int from, void* data, Bytes bytes) {
  each_message(static_cast<std::byte*>(data), bytes, [&](std::byte* piece, int count) {
    requests_.push_back(MPI_REQUEST_NULL);
    expected_bytes_.push_back(count);
    const MpiTurn turn;
    check(MPI_Irecv(piece, count, MPI_BYTE, from, tag(), comm_, &requests_.back()), operation_);
  });
}

void Messages::wait() {
  if (requests_.empty()) return;
  std::vector<MPI_Status> statuses(requests_.size());
  wait_for(requests_, statuses, operation_);
  check_sizes(statuses);
  requests_.clear();
  expected_bytes_.clear();
}

// MPI reports a message that is too long, but not one that is too short.
void Messages::check_sizes(std::span<const MPI_Status> statuses) const {
  for (std::size_t i = 0; i < statuses.size(); ++i) {
    int got = 0;
    if (expected_bytes_[i] < 0) continue;
    const MpiTurn turn;
    check(MPI_Get_count(&statuses[i], MPI_BYTE, &got), operation_);
    if (got != expected_bytes_[i])
      end_operation(operation_,
                    fmt::format("expected {} bytes from rank {} but got {}: the ranks took different paths",
                                expected_bytes_[i], statuses[i].MPI_SOURCE, got));
  }
}

void wait_for(std::span<MPI_Request> requests, std::span<MPI_Status> statuses, const Operation& operation) {
  using Clock = std::chrono::steady_clock;
  const auto deadline = Clock::now() + std::chrono::duration<double>(operation.timeout_seconds);
  constexpr int yields = 200;  // a peer on another core usually answers within this
  constexpr auto longest_sleep = std::chrono::microseconds(200);
  auto sleep = std::chrono::microseconds(5);
  for (int attempt = 0;; ++attempt) {
    int done = 0;
    {
      const MpiTurn turn;
      check(MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, statuses.data()),
            operation);
    }
    if (done != 0) return;
    if (attempt < yields) {
      ::sched_yield();
      continue;
    }
    if (Clock::now() > deadline)
      end_job(fmt::format(
          "waited {:.3g} s in {} #{} of \"{}\": another rank is dead or took a different path. Raise "
          "--timeout if the ranks are only slow",
          operation.timeout_seconds, operation.name, operation.sequence, operation.label));
    std::this_thread::sleep_for(sleep);
    sleep = std::min(sleep * 2, longest_sleep);
  }
}

}  // namespace headrace

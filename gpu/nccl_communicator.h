// The communicator over NCCL: device memory travels over NCCL on the communicate lane's stream, host memory
// over `control` on the same lane. Bytes and sums are those of the other communicators: the same messages are
// counted, and sums are made locally in rank order.
//
// What a call does is decided by where its memory lies, so all ranks must name memory of one kind. Pieces of
// an all_to_all that are all null count as device memory.
#pragma once

#include <nccl.h>

#include <functional>
#include <memory>

#include "gpu/cuda_handles.h"
#include "gpu/kernel_queue.h"
#include "gpu/nccl_watchdog.h"
#include "headrace/communicator.h"

namespace headrace {

class NcclCommunicator final : public Communicator {
 public:
  // `job_rank` is this rank's place in the whole job, for messages. Blocks until all ranks have come.
  NcclCommunicator(Device& device, std::unique_ptr<Communicator> control, const CommunicatorOptions& options,
                   int job_rank);
  ~NcclCommunicator() override;

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  void all_gather(void* buffer, std::span<const Bytes> piece_bytes, Traffic traffic,
                  std::string_view label) override;
  void all_to_all(std::span<const Piece> send, std::span<const Piece> receive, Traffic traffic,
                  std::string_view label) override;
  void all_reduce(std::span<float> values, Traffic traffic, std::string_view label) override;
  void all_reduce(std::span<double> values, Traffic traffic, std::string_view label) override;
  void all_reduce(std::span<std::uint64_t> values, Traffic traffic, std::string_view label) override;
  void broadcast(void* buffer, Bytes bytes, int root, Traffic traffic, std::string_view label) override;
  void barrier(std::string_view label) override { control_->barrier(label); }  // it waits for the lane, too
  std::unique_ptr<Communicator> split(int color, int key) override;
  TrafficCounters counters() const override;

 private:
  // Device memory for what an all-reduce gathers: beside the arena, in the reserve that available_cuda_memory
  // leaves.
  static constexpr Bytes scratch_bytes = Bytes{4} << 20;

  void start();
  void finish_lane() { device_.host_wait(device_.record(Lane::communicate)); }
  bool on_device(const void* memory) const;
  bool on_device(std::span<const Piece> send, std::span<const Piece> receive) const;

  // Enqueues one operation, watched; `calls` makes NCCL's calls and all that belongs to them. On a device
  // that has failed: nothing.
  void enqueue(const char* name, std::string_view label, const std::function<void()>& calls);
  // Within an operation. Empty pieces are not sent.
  void gather_pieces(void* buffer, std::span<const Bytes> piece_bytes);
  void exchange(std::span<const Piece> send, std::span<const Piece> receive);
  void grouped(const std::function<void()>& calls);
  void check(ncclResult_t result) const;

  template <class T>
  void sum_over_ranks(std::span<T> values, Traffic traffic, std::string_view label);
  template <class T>
  void sum_slices(std::span<T> values);
  template <class T>
  void sum_own_part(std::span<T> own, std::span<const Piece> parts);

  Device& device_;
  KernelQueue& queue_;
  const std::unique_ptr<Communicator> control_;
  const CommunicatorOptions options_;
  const int job_rank_, rank_, size_;
  DeviceBytes scratch_;
  NcclWatchdog watchdog_;
  ncclComm_t comm_ = nullptr;
  NcclOperation operation_;  // the last one enqueued
  std::uint64_t sequence_ = 0;
  TrafficCounters counters_;
  Bytes start_bytes_ = 0;  // what start() sent over control, which is not the caller's traffic
};

}  // namespace headrace

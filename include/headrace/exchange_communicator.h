// A communicator made of one operation: bytes from each rank to each other one. What a transport adds to it
// is that exchange: MPI's messages (src/comm/mpi), or what the caller has, such as torch.distributed.
//
// The bytes that move are the ones counted, pieces may be uneven or empty, and sums are made locally in rank
// order. HEADRACE_COMM_CHECK=1: before every operation the ranks tell each other which one they are in.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/communicator.h"

namespace headrace {

// What is being waited for, and how long at most.
struct Operation {
  const char* name = "";
  std::uint64_t sequence = 0;
  std::string label;
  double timeout_seconds = 0;
};

class ExchangeCommunicator : public Communicator {
 public:
  ExchangeCommunicator(Device& device, const CommunicatorOptions& options, int rank, int size);

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
  void barrier(std::string_view label) override;
  TrafficCounters counters() const override { return counters_; }

 protected:
  using Work = std::function<void(const Operation&)>;
  // On the communicate lane: sends send[r] to rank r and receives receive[r] from it, for every other rank;
  // back when all have passed. Empty pieces are not sent.
  virtual void exchange(std::span<const Piece> send, std::span<const Piece> receive,
                        const Operation& operation) const = 0;
  // The same of nothing: back when all ranks are in it.
  virtual void wait_for_all_ranks(const Operation& operation) const;
  void enqueue(const char* name, std::string_view label, Work work);
  void finish_lane() { device_.host_wait(device_.record(Lane::communicate)); }
  Device& device() { return device_; }
  const CommunicatorOptions& options() const { return options_; }

 private:
  void check_same_call(const Operation& operation) const;
  template <class T>
  void sum_in_rank_order(std::span<T> values, Traffic traffic, std::string_view label);
  template <class T>
  void sum_gathered(std::span<T> values, const Operation& operation) const;
  template <class T>
  void sum_sliced(std::span<T> values, const Operation& operation) const;

  Device& device_;
  const CommunicatorOptions options_;
  const int rank_, size_;
  const bool check_calls_;
  std::uint64_t sequence_ = 0;
  TrafficCounters counters_;
};

// Over an exchange of the caller's, which the communicate lane's thread calls. It cannot be split.
using Exchange = std::function<void(std::span<const Communicator::Piece> send,
                                    std::span<const Communicator::Piece> receive, const Operation&)>;
std::unique_ptr<Communicator> make_exchange_communicator(Device& device, const CommunicatorOptions& options,
                                                         int rank, int size, Exchange exchange);

}  // namespace headrace

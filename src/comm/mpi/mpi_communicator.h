// The communicator over MPI. Every MPI call between initialisation and exit runs on its device's communicate
// lane, one at a time over all devices (MpiTurn). Collectives are made of point-to-point messages: the bytes
// that move are the ones counted, pieces may be uneven or empty, and sums are made locally in rank order.
#pragma once

#include <mpi.h>

#include <functional>
#include <vector>

#include "headrace/communicator.h"
#include "src/comm/mpi/messages.h"

namespace headrace {

// A communicator of MPI and this process's place in it.
struct MpiGroup {
  MPI_Comm comm = MPI_COMM_NULL;
  int rank = 0, size = 1;
};

class MpiCommunicator final : public Communicator {
 public:
  MpiCommunicator(Device& device, const CommunicatorOptions& options, MpiGroup group);  // owns the group
  ~MpiCommunicator() override;
  // All ranks of the job. Blocks.
  static std::unique_ptr<Communicator> of_world(Device& device, const CommunicatorOptions& options);

  int rank() const override { return group_.rank; }
  int size() const override { return group_.size; }
  void all_gather(void* buffer, std::span<const Bytes> piece_bytes, Traffic traffic,
                  std::string_view label) override;
  void all_to_all(std::span<const Piece> send, std::span<const Piece> receive, Traffic traffic,
                  std::string_view label) override;
  void all_reduce(std::span<float> values, Traffic traffic, std::string_view label) override;
  void all_reduce(std::span<double> values, Traffic traffic, std::string_view label) override;
  void all_reduce(std::span<std::uint64_t> values, Traffic traffic, std::string_view label) override;
  void broadcast(void* buffer, Bytes bytes, int root, Traffic traffic, std::string_view label) override;
  void barrier(std::string_view label) override;
  std::unique_ptr<Communicator> split(int color, int key) override;
  TrafficCounters counters() const override { return counters_; }

 private:
  using Work = std::function<void(const Operation&)>;
  void enqueue(const char* name, std::string_view label, Work work);
  void finish_lane() { device_.host_wait(device_.record(Lane::communicate)); }
  // On the lane: sends send[r] to rank r and receives receive[r] from it, for every other rank.
  void exchange(std::span<const Piece> send, std::span<const Piece> receive,
                const Operation& operation) const;
  void wait_for_all_ranks(const Operation& operation) const;

  template <class T>
  void sum_in_rank_order(std::span<T> values, Traffic traffic, std::string_view label);
  template <class T>
  void sum_gathered(std::span<T> values, const Operation& operation) const;
  template <class T>
  void sum_sliced(std::span<T> values, const Operation& operation) const;

  Device& device_;
  const CommunicatorOptions options_;
  MpiGroup group_;
  const bool check_calls_;
  std::uint64_t sequence_ = 0;
  TrafficCounters counters_;
};

}  // namespace headrace

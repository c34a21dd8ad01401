// The communicator seam: collectives over ranks, each enqueued on the device's communicate lane, each
// uneven-capable.
//
// Threads: one owner thread calls; nothing blocks except where said. Buffers stay valid until the lane has
// passed the call. Every rank makes the same calls in the same order. Sums are fp32 in rank order, so results
// do not depend on timing. Bytes are counted here, per rank: those sent to other ranks. A rank that dies or
// waits past the time-out ends the job with the operation, its sequence number and `label` named.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "headrace/bytes.h"
#include "headrace/device.h"

namespace headrace {

// What the bytes of a call are counted as. `control` is everything small that keeps ranks in step (norms,
// flags, commits).
enum class Traffic : std::uint8_t { all_gather, reduce_scatter, all_reduce, control };

struct TrafficCounters {
  Bytes all_gather_bytes = 0, reduce_scatter_bytes = 0, all_reduce_bytes = 0, control_bytes = 0;
  Bytes& operator[](Traffic traffic) {
    switch (traffic) {
      case Traffic::all_gather:
        return all_gather_bytes;
      case Traffic::reduce_scatter:
        return reduce_scatter_bytes;
      case Traffic::all_reduce:
        return all_reduce_bytes;
      case Traffic::control:
        break;
    }
    return control_bytes;
  }
};

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // In place: piece r of `buffer` (pieces end to end, piece_bytes[r] long, 0 allowed) comes from rank r.
  // `label` (static or outliving the call's execution) names the unit in errors.
  virtual void all_gather(void* buffer, std::span<const Bytes> piece_bytes, Traffic traffic,
                          std::string_view label) = 0;

  // Sends send_pieces[r] to rank r and receives receive_pieces[r] from it; the own piece is copied. This is
  // the wire half of a reduce-scatter: the sum in rank order is DeviceKernels::sum_slices.
  struct Piece {
    void* data = nullptr;
    Bytes bytes = 0;
  };
  virtual void all_to_all(std::span<const Piece> send_pieces, std::span<const Piece> receive_pieces,
                          Traffic traffic, std::string_view label) = 0;

  // values[i] = sum over ranks, in rank order, in the type's arithmetic.
  virtual void all_reduce(std::span<float> values, Traffic traffic, std::string_view label) = 0;
  virtual void all_reduce(std::span<double> values, Traffic traffic, std::string_view label) = 0;
  virtual void all_reduce(std::span<std::uint64_t> values, Traffic traffic,
                          std::string_view label) = 0;  // modulo 2^64
  virtual void broadcast(void* buffer, Bytes bytes, int root, Traffic traffic, std::string_view label) = 0;

  // Blocks the caller until every rank has arrived and all earlier calls are done.
  virtual void barrier(std::string_view label) = 0;
  // Ranks with the same color form a new communicator, ordered by key. Blocks.
  virtual std::unique_ptr<Communicator> split(int color, int key) = 0;

  virtual TrafficCounters counters() const = 0;
};

// One small value of every rank, in rank order. A collective that blocks, counted as control; `label` as
// above.
template <class Value>
std::vector<Value> gather_from_ranks(const Value& own, Communicator& communicator, Device& device,
                                     std::string_view label) {
  static_assert(std::is_trivially_copyable_v<Value>);
  std::vector<Value> all(static_cast<std::size_t>(communicator.size()));
  all[static_cast<std::size_t>(communicator.rank())] = own;
  const std::vector<Bytes> pieces(all.size(), sizeof(Value));
  if (communicator.size() > 1) communicator.all_gather(all.data(), pieces, Traffic::control, label);
  device.synchronize();
  return all;
}

struct CommunicatorOptions {
  double timeout_seconds = 600;
};

std::unique_ptr<Communicator> make_single_communicator(Device& device);
// Loads the MPI module (libheadrace_mpi.so beside the program); UsageError naming the package when that
// fails. MPI_Init is called once per process, MPI_Finalize at exit.
std::unique_ptr<Communicator> make_mpi_communicator(Device& device, const CommunicatorOptions& options);
// Device memory travels over NCCL, host memory over `control`, which also carries NCCL's id and the barriers.
// `device` is make_cuda_device's. Throws UsageError saying how to get it when built without NCCL.
std::unique_ptr<Communicator> make_nccl_communicator(Device& device, std::unique_ptr<Communicator> control,
                                                     const CommunicatorOptions& options);

// What a launcher (mpirun, srun, torchrun) says of this process through its environment; {0, 1, 0, 1} without
// one.
struct LaunchInfo {
  int rank = 0, size = 1, local_rank = 0, local_size = 1;
  std::string launcher = "none";
};
LaunchInfo launch_info();

}  // namespace headrace

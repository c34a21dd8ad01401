#include "gpu/nccl_communicator.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "gpu/cuda_device.h"
#include "gpu/cuda_status.h"
#include "gpu/nccl_status.h"
#include "headrace/errors.h"
#include "headrace/log.h"

namespace headrace {
namespace {

DeviceBytes allocate(Bytes bytes) {
  void* memory = nullptr;
  check_cuda(cudaMalloc(&memory, bytes), fmt::format("allocate {} to sum over ranks", format_bytes(bytes)));
  return DeviceBytes(memory);
}

// NCCL wants a device for each rank; launchers that show each rank one device may show two the same.
void require_own_devices(Communicator& control, Device& device) {
  struct Place {
    char host[64], bus[32];
    bool operator==(const Place& other) const { return std::memcmp(this, &other, sizeof(Place)) == 0; }
  };
  Place own{};
  ::gethostname(own.host, sizeof own.host - 1);
  int index = 0;
  check_cuda(cudaGetDevice(&index), "ask for the device");
  check_cuda(cudaDeviceGetPCIBusId(own.bus, sizeof own.bus, index), "ask for the device's place on the bus");
  const std::vector<Place> all = gather_from_ranks(own, control, device, "devices of the ranks");
  for (std::size_t a = 0; a < all.size(); ++a)
    if (const auto b = std::find(all.begin() + static_cast<std::ptrdiff_t>(a) + 1, all.end(), all[a]);
        b != all.end())
      throw UsageError(
          fmt::format("ranks {} and {} would use the same device ({} of {}): start one rank a device, or let "
                      "the launcher "
                      "give each rank its own.",
                      a, b - all.begin(), all[a].bus, all[a].host));
}

}  // namespace

NcclCommunicator::NcclCommunicator(Device& device, std::unique_ptr<Communicator> control,
                                   const CommunicatorOptions& options, int job_rank)
    : device_(device),
      queue_(cuda_device(device).queue(Lane::communicate)),
      control_(std::move(control)),
      options_(options),
      job_rank_(job_rank),
      rank_(control_->rank()),
      size_(control_->size()),
      scratch_(allocate(scratch_bytes)),
      watchdog_(job_rank, options.timeout_seconds) {
  start();
}

// Rank 0 makes the id by which NCCL's ranks find each other.
void NcclCommunicator::start() {
  const Bytes before = control_->counters().control_bytes;
  require_own_devices(*control_, device_);
  ncclUniqueId id{};
  if (rank_ == 0) check_nccl(ncclGetUniqueId(&id), "ncclGetUniqueId");
  control_->broadcast(&id, sizeof id, 0, Traffic::control, "id of NCCL");
  finish_lane();
  start_bytes_ = control_->counters().control_bytes - before;
  watchdog_.begins({"start", 0, "NCCL"});
  check_nccl(ncclCommInitRank(&comm_, size_, id, rank_), "ncclCommInitRank");
  watchdog_.ends();
  watchdog_.set_communicator(comm_);
}

NcclCommunicator::~NcclCommunicator() {
  bool well = true;
  try {
    finish_lane();
  } catch (...) {  // NOLINT: the device has failed, which another wait reports
    well = false;
  }
  watchdog_.set_communicator(nullptr);
  watchdog_.begins({"end", sequence_, "NCCL"});
  const ncclResult_t result = well ? ncclCommDestroy(comm_) : ncclCommAbort(comm_);
  watchdog_.ends();
  if (well && result != ncclSuccess)
    warn_once("NCCL end", fmt::format("NCCL did not end well: {}.", nccl_error_text(result, nullptr)));
}

void NcclCommunicator::all_gather(void* buffer, std::span<const Bytes> piece_bytes, Traffic traffic,
                                  std::string_view label) {
  const auto self = static_cast<std::size_t>(rank_), ranks = static_cast<std::size_t>(size_);
  HEADRACE_CHECK(piece_bytes.size() == ranks, "{} pieces, {} ranks", piece_bytes.size(), ranks);
  if (std::ranges::count(piece_bytes, Bytes{0}) == size_) return;
  if (!on_device(buffer)) return control_->all_gather(buffer, piece_bytes, traffic, label);
  counters_[traffic] += piece_bytes[self] * (ranks - 1);
  enqueue("all_gather", label, [&] { gather_pieces(buffer, piece_bytes); });
}

void NcclCommunicator::all_to_all(std::span<const Piece> send, std::span<const Piece> receive,
                                  Traffic traffic, std::string_view label) {
  const auto self = static_cast<std::size_t>(rank_), ranks = static_cast<std::size_t>(size_);
  HEADRACE_CHECK(send.size() == ranks && receive.size() == ranks, "{} and {} pieces, {} ranks", send.size(),
                 receive.size(), ranks);
  HEADRACE_CHECK(send[self].bytes == receive[self].bytes, "own piece of {} and {} bytes", send[self].bytes,
                 receive[self].bytes);
  if (!on_device(send, receive)) return control_->all_to_all(send, receive, traffic, label);
  for (std::size_t r = 0; r < ranks; ++r)
    if (r != self) counters_[traffic] += send[r].bytes;
  enqueue("all_to_all", label, [&] {
    if (send[self].data != receive[self].data)
      device_.copy(Lane::communicate, receive[self].data, send[self].data, send[self].bytes);
    exchange(send, receive);
  });
}

void NcclCommunicator::broadcast(void* buffer, Bytes bytes, int root, Traffic traffic,
                                 std::string_view label) {
  HEADRACE_CHECK(root >= 0 && root < size_, "broadcast from rank {} of {}", root, size_);
  if (bytes == 0) return;
  if (!on_device(buffer)) return control_->broadcast(buffer, bytes, root, traffic, label);
  if (rank_ == root) counters_[traffic] += bytes * static_cast<Bytes>(size_ - 1);
  enqueue("broadcast", label,
          [&] { check(ncclBroadcast(buffer, buffer, bytes, ncclUint8, root, comm_, queue_.stream())); });
}

// The parts find each other as the whole did.
std::unique_ptr<Communicator> NcclCommunicator::split(int color, int key) {
  return std::make_unique<NcclCommunicator>(device_, control_->split(color, key), options_, job_rank_);
}

TrafficCounters NcclCommunicator::counters() const {
  TrafficCounters all = control_->counters();
  all.all_gather_bytes += counters_.all_gather_bytes;
  all.reduce_scatter_bytes += counters_.reduce_scatter_bytes;
  all.all_reduce_bytes += counters_.all_reduce_bytes;
  all.control_bytes += counters_.control_bytes - start_bytes_;
  return all;
}

bool NcclCommunicator::on_device(const void* memory) const {
  const auto at = reinterpret_cast<std::uintptr_t>(memory),
             start = reinterpret_cast<std::uintptr_t>(device_.arena());
  return at >= start &&
         at - start <= device_.info().memory_capacity_bytes;  // an empty piece may be at the end
}

bool NcclCommunicator::on_device(std::span<const Piece> send, std::span<const Piece> receive) const {
  bool device = false, host = false;
  for (const auto pieces : {send, receive})
    for (const Piece& piece : pieces)
      if (piece.data != nullptr) (on_device(piece.data) ? device : host) = true;
  HEADRACE_CHECK(!device || !host, "an all_to_all of device and of host memory");
  return !host;
}

void NcclCommunicator::enqueue(const char* name, std::string_view label, const std::function<void()>& calls) {
  if (!queue_.active()) return;
  operation_ = {name, sequence_++, std::string(label)};
  queue_.launching(name);
  watchdog_.begins(operation_, queue_.stream());
  try {
    calls();
  } catch (...) {
    watchdog_.fails();
    // A device that has failed says why; NCCL knows only that it cannot be used.
    const cudaError_t status = cudaStreamQuery(queue_.stream());
    if (status != cudaSuccess && status != cudaErrorNotReady) device_.synchronize();
    throw;
  }
  watchdog_.ends();
  queue_.launched(name);
}

void NcclCommunicator::gather_pieces(void* buffer, std::span<const Bytes> piece_bytes) {
  auto* const first = static_cast<std::byte*>(buffer);
  if (std::ranges::count(piece_bytes, piece_bytes[0]) == size_) {
    const std::byte* own = first + piece_bytes[0] * static_cast<Bytes>(rank_);
    return check(ncclAllGather(own, first, piece_bytes[0], ncclUint8, comm_, queue_.stream()));
  }
  grouped([&] {
    std::byte* piece = first;
    for (int root = 0; root < size_; ++root) {
      const Bytes bytes = piece_bytes[static_cast<std::size_t>(root)];
      if (bytes > 0) check(ncclBroadcast(piece, piece, bytes, ncclUint8, root, comm_, queue_.stream()));
      piece += bytes;
    }
  });
}

void NcclCommunicator::exchange(std::span<const Piece> send, std::span<const Piece> receive) {
  grouped([&] {
    for (int step = 1; step < size_; ++step) {  // start with the next rank, so that not all send to one first
      const int to = (rank_ + step) % size_, from = (rank_ + size_ - step) % size_;
      const Piece &out = send[static_cast<std::size_t>(to)], &in = receive[static_cast<std::size_t>(from)];
      if (out.bytes > 0) check(ncclSend(out.data, out.bytes, ncclUint8, to, comm_, queue_.stream()));
      if (in.bytes > 0) check(ncclRecv(in.data, in.bytes, ncclUint8, from, comm_, queue_.stream()));
    }
  });
}

// A group is ended even when a call in it failed, or it would take in all later calls of this thread.
void NcclCommunicator::grouped(const std::function<void()>& calls) {
  check(ncclGroupStart());
  try {
    calls();
  } catch (...) {
    ncclGroupEnd();
    throw;
  }
  check(ncclGroupEnd());
}

void NcclCommunicator::check(ncclResult_t result) const {
  if (result != ncclSuccess) check_nccl(result, operation_.text(), comm_);
}

std::unique_ptr<Communicator> make_nccl_communicator(Device& device, std::unique_ptr<Communicator> control,
                                                     const CommunicatorOptions& options) {
  const int rank = control->rank();
  return std::make_unique<NcclCommunicator>(device, std::move(control), options, rank);
}

}  // namespace headrace

#include "src/comm/mpi/mpi_communicator.h"

#include <cstring>

#include "headrace/errors.h"
#include "src/comm/mpi/call_check.h"
#include "src/comm/mpi/mpi_world.h"

namespace headrace {

MpiCommunicator::MpiCommunicator(Device& device, const CommunicatorOptions& options, MpiGroup group)
    : device_(device), options_(options), group_(group), check_calls_(call_check_asked_for()) {}

MpiCommunicator::~MpiCommunicator() {
  try {
    device_.enqueue(Lane::communicate, "free communicator", [this] {
      const MpiTurn turn;
      MPI_Comm_free(&group_.comm);
    });
    finish_lane();
  } catch (...) {  // NOLINT: the lane had failed, which another wait reports; the handle is left to the exit
  }
}

std::unique_ptr<Communicator> MpiCommunicator::of_world(Device& device, const CommunicatorOptions& options) {
  ensure_mpi(options.timeout_seconds);
  MpiGroup group;
  device.enqueue(Lane::communicate, "duplicate communicator", [&] {
    const Operation operation{"start", 0, "world", options.timeout_seconds};
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Status status;
    {
      const MpiTurn turn;
      check_mpi(MPI_Comm_idup(MPI_COMM_WORLD, &group.comm, &request), "MPI_Comm_idup");
    }
    wait_for({&request, 1}, {&status, 1}, operation);
    const MpiTurn turn;
    check_mpi(MPI_Comm_rank(group.comm, &group.rank), "MPI_Comm_rank");
    check_mpi(MPI_Comm_size(group.comm, &group.size), "MPI_Comm_size");
  });
  device.host_wait(device.record(Lane::communicate));
  return std::make_unique<MpiCommunicator>(device, options, group);
}

void MpiCommunicator::all_gather(void* buffer, std::span<const Bytes> piece_bytes, Traffic traffic,
                                 std::string_view label) {
  const auto self = static_cast<std::size_t>(rank()), ranks = static_cast<std::size_t>(size());
  HEADRACE_CHECK(piece_bytes.size() == ranks, "{} pieces, {} ranks", piece_bytes.size(), ranks);
  counters_[traffic] += piece_bytes[self] * (ranks - 1);
  std::vector<Piece> pieces;
  for (auto* next = static_cast<std::byte*>(buffer); const Bytes bytes : piece_bytes) {
    pieces.push_back({next, bytes});
    next += bytes;
  }
  enqueue("all_gather", label, [this, self, pieces = std::move(pieces)](const Operation& operation) {
    exchange(std::vector<Piece>(pieces.size(), pieces[self]), pieces, operation);
  });
}

void MpiCommunicator::all_to_all(std::span<const Piece> send, std::span<const Piece> receive, Traffic traffic,
                                 std::string_view label) {
  const auto self = static_cast<std::size_t>(rank()), ranks = static_cast<std::size_t>(size());
  HEADRACE_CHECK(send.size() == ranks && receive.size() == ranks, "{} and {} pieces, {} ranks", send.size(),
                 receive.size(), ranks);
  HEADRACE_CHECK(send[self].bytes == receive[self].bytes, "own piece of {} and {} bytes", send[self].bytes,
                 receive[self].bytes);
  for (std::size_t r = 0; r < ranks; ++r)
    if (r != self) counters_[traffic] += send[r].bytes;
  enqueue("all_to_all", label,
          [this, self, sends = std::vector<Piece>(send.begin(), send.end()),
           receives = std::vector<Piece>(receive.begin(), receive.end())](const Operation& operation) {
            exchange(sends, receives, operation);
            if (sends[self].bytes > 0 && sends[self].data != receives[self].data)
              std::memcpy(receives[self].data, sends[self].data, sends[self].bytes);
          });
}

void MpiCommunicator::broadcast(void* buffer, Bytes bytes, int root, Traffic traffic,
                                std::string_view label) {
  const auto ranks = static_cast<std::size_t>(size());
  HEADRACE_CHECK(root >= 0 && root < size(), "broadcast from rank {} of {}", root, size());
  const bool sends = rank() == root;
  if (sends) counters_[traffic] += bytes * (ranks - 1);
  enqueue("broadcast", label, [this, ranks, sends, buffer, bytes, root](const Operation& operation) {
    std::vector<Piece> send(ranks, sends ? Piece{buffer, bytes} : Piece{}), receive(ranks);
    if (!sends) receive[static_cast<std::size_t>(root)] = {buffer, bytes};
    exchange(send, receive, operation);
  });
}

void MpiCommunicator::barrier(std::string_view label) {
  enqueue("barrier", label, [this](const Operation& operation) { wait_for_all_ranks(operation); });
  finish_lane();
}

std::unique_ptr<Communicator> MpiCommunicator::split(int color, int key) {
  HEADRACE_CHECK(color >= 0, "split with color {}", color);
  MpiGroup part;
  enqueue("split", "split", [this, color, key, &part](const Operation& operation) {
    wait_for_all_ranks(operation);  // MPI_Comm_split has no time-out
    const MpiTurn turn;
    check_mpi(MPI_Comm_split(group_.comm, color, key, &part.comm), "MPI_Comm_split");
    check_mpi(MPI_Comm_rank(part.comm, &part.rank), "MPI_Comm_rank");
    check_mpi(MPI_Comm_size(part.comm, &part.size), "MPI_Comm_size");
  });
  finish_lane();
  return std::make_unique<MpiCommunicator>(device_, options_, part);
}

void MpiCommunicator::enqueue(const char* name, std::string_view label, Work work) {
  Operation operation{name, sequence_++, std::string(label), options_.timeout_seconds};
  device_.enqueue(Lane::communicate, name, [this, operation = std::move(operation), work = std::move(work)] {
    if (check_calls_) check_same_call(group_.comm, group_.rank, group_.size, operation);
    work(operation);
  });
}

void MpiCommunicator::exchange(std::span<const Piece> send, std::span<const Piece> receive,
                               const Operation& operation) const {
  Messages messages(group_.comm, operation);
  for (int step = 1; step < size(); ++step) {  // start with the next rank, so that not all send to one first
    const int to = (rank() + step) % size(), from = (rank() + size() - step) % size();
    const Piece& in = receive[static_cast<std::size_t>(from)];
    const Piece& out = send[static_cast<std::size_t>(to)];
    messages.receive(from, in.data, in.bytes);
    messages.send(to, out.data, out.bytes);
  }
  messages.wait();
}

void MpiCommunicator::wait_for_all_ranks(const Operation& operation) const {
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Status status;
  {
    const MpiTurn turn;
    check_mpi(MPI_Ibarrier(group_.comm, &request), "MPI_Ibarrier");
  }
  wait_for({&request, 1}, {&status, 1}, operation);
}

// The module's only entry (mpi_module.cpp looks it up by name).
extern "C" Communicator* headrace_make_mpi_communicator(Device* device, const CommunicatorOptions* options) {
  return MpiCommunicator::of_world(*device, *options).release();
}

}  // namespace headrace

#include "src/comm/mpi/mpi_communicator.h"

#include "headrace/errors.h"
#include "src/comm/mpi/mpi_world.h"

namespace headrace {

MpiCommunicator::MpiCommunicator(Device& device, const CommunicatorOptions& options, MpiGroup group)
    : ExchangeCommunicator(device, options, group.rank, group.size), group_(group) {}

MpiCommunicator::~MpiCommunicator() {
  try {
    device().enqueue(Lane::communicate, "free communicator", [this] {
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
  return std::make_unique<MpiCommunicator>(device(), options(), part);
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

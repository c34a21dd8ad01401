// The communicator over MPI. Every MPI call between initialisation and exit runs on its device's communicate
// lane, one at a time over all devices (MpiTurn). Collectives are made of point-to-point messages.
#pragma once

#include <mpi.h>

#include <memory>

#include "headrace/exchange_communicator.h"
#include "src/comm/mpi/messages.h"

namespace headrace {

// A communicator of MPI and this process's place in it.
struct MpiGroup {
  MPI_Comm comm = MPI_COMM_NULL;
  int rank = 0, size = 1;
};

class MpiCommunicator final : public ExchangeCommunicator {
 public:
  MpiCommunicator(Device& device, const CommunicatorOptions& options, MpiGroup group);  // owns the group
  ~MpiCommunicator() override;
  // All ranks of the job. Blocks.
  static std::unique_ptr<Communicator> of_world(Device& device, const CommunicatorOptions& options);

  std::unique_ptr<Communicator> split(int color, int key) override;

 private:
  void exchange(std::span<const Piece> send, std::span<const Piece> receive,
                const Operation& operation) const override;
  void wait_for_all_ranks(const Operation& operation) const override;

  MpiGroup group_;
};

}  // namespace headrace

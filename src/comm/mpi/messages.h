// Point-to-point messages under way, and waiting for them without burning a core (MPI_Wait spins).
#pragma once

#include <mpi.h>

#include <span>
#include <vector>

#include "headrace/bytes.h"
#include "headrace/exchange_communicator.h"

namespace headrace {

// The messages of one operation. One that fails, has another size than expected, or does not come before the
// time-out ends the whole job with status 1, and the operation, its sequence number and label named.
class Messages {
 public:
  Messages(MPI_Comm comm, const Operation& operation) : comm_(comm), operation_(operation) {}
  // Memory must stay valid until wait() has returned. Empty messages are not sent.
  void send(int to, const void* data, Bytes bytes);
  void receive(int from, void* data, Bytes bytes);
  void wait();

 private:
  int tag() const { return static_cast<int>(operation_.sequence & 0x7fff); }
  void check_sizes(std::span<const MPI_Status> statuses) const;

  MPI_Comm comm_;
  const Operation& operation_;
  std::vector<MPI_Request> requests_;
  std::vector<int> expected_bytes_;  // of each request; -1 for a send
};

// Polls with back-off until all requests are complete; ends the job at the time-out.
void wait_for(std::span<MPI_Request> requests, std::span<MPI_Status> statuses, const Operation& operation);

}  // namespace headrace

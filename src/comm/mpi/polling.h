// Waits for MPI requests without burning a core (MPI_Wait spins), and ends the job when a peer does not
// answer.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <string>
#include <vector>

namespace headrace {

// What is being waited for, named in the time-out message.
struct OperationName {
  const char* operation = "";
  std::uint64_t sequence = 0;
  std::string label;
};

// Returns when all requests are complete. After timeout_seconds prints the operation, sequence number and
// label, and ends the whole job with status 1.
void wait_for(std::vector<MPI_Request>& requests, const OperationName& name, double timeout_seconds);

}  // namespace headrace

// MPI of this process: initialised once by the first communicator, finalised when the process exits in good
// order. A process that fails leaves by _Exit, which the launcher sees as the end of the job.
#pragma once

#include <mpi.h>

#include <string_view>

namespace headrace {

// Initialises MPI if need be; throws UsageError when the launcher speaks of more ranks than MPI sees.
void ensure_mpi();
// Ends the process and the job when an MPI call failed. MPI's own errors cannot be recovered from.
void check_mpi(int result, std::string_view call);

}  // namespace headrace

// MPI of this process: initialised once by the first communicator, left when the process exits.
//
// [Note: leaving] MPI_Finalize waits for every rank. So a rank that fails alone must not call it, or the job
// would hang until the others' time-out. At exit a rank says so to the others; when all leave, MPI is
// finalised, whatever their exit status; when a failing rank finds that the others do not leave within a
// short grace, it ends the job with its status.
#pragma once

#include <mpi.h>

#include <string>
#include <string_view>

namespace headrace {

// Initialises MPI if need be. UsageError when the launcher speaks of another number of ranks than MPI sees;
// ends the job when not all ranks arrive within the time-out. Called by the thread that owns the device.
void ensure_mpi(double timeout_seconds);

// Held during each call of MPI between initialisation and exit: MPI_THREAD_SERIALIZED. Lanes of several
// devices call it (a background save has one of its own), and none holds it while it waits for another rank.
class [[nodiscard]] MpiTurn {
 public:
  MpiTurn();
  ~MpiTurn();
  MpiTurn(const MpiTurn&) = delete;
  MpiTurn& operator=(const MpiTurn&) = delete;
};

std::string mpi_error_text(int result);
// Prints "headrace: rank r <what>. The job ends." and ends all ranks with status 1. MPI's own errors cannot
// be recovered from.
[[noreturn]] void end_job(std::string_view what);
void check_mpi(int result, std::string_view call);  // ends the job unless MPI_SUCCESS

}  // namespace headrace

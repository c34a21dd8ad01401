// HEADRACE_COMM_CHECK=1: before every operation the ranks tell each other which one they are in.
#pragma once

#include <mpi.h>

#include "src/comm/mpi/messages.h"

namespace headrace {

bool call_check_asked_for();
// Throws Error naming both calls when a rank of `comm` is in another operation, sequence number or label.
void check_same_call(MPI_Comm comm, int rank, int size, const Operation& operation);

}  // namespace headrace

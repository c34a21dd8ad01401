#include "src/comm/mpi/mpi_world.h"

#include <cstdio>
#include <cstdlib>
#include <string>

#include "headrace/communicator.h"
#include "headrace/errors.h"

namespace headrace {
namespace {

void finalize_mpi() {
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (finalized == 0) MPI_Finalize();
}

int expected_size() {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"})
    if (const char* value = std::getenv(name)) return std::atoi(value);
  return 1;
}

}  // namespace

void check_mpi(int result, std::string_view call) {
  if (result == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(result, text, &length);
  std::fprintf(stderr, "headrace: %.*s failed: %.*s. The job ends.\n", static_cast<int>(call.size()),
               call.data(), length, text);
  MPI_Abort(MPI_COMM_WORLD, 1);
  std::_Exit(1);
}

void ensure_mpi() {
  int initialised = 0;
  MPI_Initialized(&initialised);
  if (initialised != 0) return;
  int provided = 0;
  check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided), "MPI_Init_thread");
  std::atexit(finalize_mpi);
  if (provided < MPI_THREAD_SERIALIZED)
    throw UsageError(
        "this MPI library was built without thread support (MPI_THREAD_SERIALIZED). Install Debian's "
        "OpenMPI.");
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  int size = 1;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (size != expected_size())
    throw UsageError(fmt::format(
        "the launcher started {} ranks but MPI sees {}. The launcher and the MPI library belong to different "
        "installations: use the mpirun of the same package.",
        expected_size(), size));
}

}  // namespace headrace

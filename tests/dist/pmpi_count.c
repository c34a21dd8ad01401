// Preloaded: counts the bytes of every message that the process hands to MPI, by MPI's own profiling
// interface.
#include <mpi.h>
#include <stdint.h>

static uint64_t sent_bytes;
static uint64_t other_calls;

uint64_t pmpi_sent_bytes(void);
uint64_t pmpi_other_calls(void);
uint64_t pmpi_sent_bytes(void) {
  return sent_bytes;
}
// Calls of data-moving functions that the count does not understand; must stay 0.
uint64_t pmpi_other_calls(void) {
  return other_calls;
}

int MPI_Isend(const void* data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
              MPI_Request* request) {
  int size = 0;
  PMPI_Type_size(type, &size);
  sent_bytes += (uint64_t)count * (uint64_t)size;
  return PMPI_Isend(data, count, type, to, tag, comm, request);
}

int MPI_Send(const void* data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm) {
  ++other_calls;
  return PMPI_Send(data, count, type, to, tag, comm);
}

int MPI_Allreduce(const void* send, void* receive, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
  ++other_calls;
  return PMPI_Allreduce(send, receive, count, type, op, comm);
}

int MPI_Allgatherv(const void* send, int count, MPI_Datatype type, void* receive, const int counts[],
                   const int starts[], MPI_Datatype receive_type, MPI_Comm comm) {
  ++other_calls;
  return PMPI_Allgatherv(send, count, type, receive, counts, starts, receive_type, comm);
}

int MPI_Bcast(void* data, int count, MPI_Datatype type, int root, MPI_Comm comm) {
  ++other_calls;
  return PMPI_Bcast(data, count, type, root, comm);
}

int MPI_Alltoallv(const void* send, const int send_counts[], const int send_starts[], MPI_Datatype send_type,
                  void* receive, const int receive_counts[], const int receive_starts[],
                  MPI_Datatype receive_type, MPI_Comm comm) {
  ++other_calls;
  return PMPI_Alltoallv(send, send_counts, send_starts, send_type, receive, receive_counts, receive_starts,
                        receive_type, comm);
}

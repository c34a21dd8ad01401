// The communicator contract over NCCL, with MPI for host memory: one rank of a job that mpirun starts. One
// rank alone has no MPI.
#include <gtest/gtest.h>

#include "contract/communicator_under_test.h"

headrace::CommunicatorUnderTest headrace::communicator_under_test(Bytes device_memory_bytes) {
  const LaunchInfo launch = launch_info();
  auto device = make_cuda_device({.memory_bytes = device_memory_bytes,
                                  .local_rank = launch.local_rank,
                                  .local_size = launch.local_size});
  const CommunicatorOptions options{.timeout_seconds = 30};
  auto control =
      launch.size > 1 ? make_mpi_communicator(*device, options) : make_single_communicator(*device);
  auto communicator = make_nccl_communicator(*device, std::move(control), options);
  return {std::move(device), std::move(communicator)};
}

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}

// The communicator contract over MPI: one rank of a job that mpirun starts. Ranks run the same tests in the
// same order.
#include <gtest/gtest.h>

#include "contract/communicator_under_test.h"

headrace::CommunicatorUnderTest headrace::communicator_under_test(Bytes device_memory_bytes) {
  auto device = make_cpu_device({.memory_bytes = device_memory_bytes});
  auto communicator = make_mpi_communicator(*device, {.timeout_seconds = 30});
  return {std::move(device), std::move(communicator)};
}

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}

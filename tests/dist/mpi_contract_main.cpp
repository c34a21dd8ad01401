// The communicator contract over MPI: one rank of a job that mpirun starts. Ranks run the same tests in the
// same order.
#include <gtest/gtest.h>

#include "contract/communicator_under_test.h"

std::unique_ptr<headrace::Communicator> headrace::communicator_under_test(Device& device) {
  return make_mpi_communicator(device, {.timeout_seconds = 30});
}

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}

// Linked into programs that need real CUDA devices, one for each rank: where there are fewer, every test is
// skipped with the reason.
#include <gtest/gtest.h>

#include <iostream>

#include "headrace/communicator.h"
#include "headrace/device.h"
#include "headrace/errors.h"

namespace headrace {
namespace {

class NeedsDevice : public testing::Environment {
 public:
  void SetUp() override {
    const LaunchInfo launch = launch_info();
    try {
      make_cuda_device(
          {.memory_bytes = 4096, .local_rank = launch.local_rank, .local_size = launch.local_size});
    } catch (const UsageError& error) {
      // The mark by which ctest knows a skipped test; an environment's own skip does not print it.
      std::cout << "[  SKIPPED ] no device for each rank: " << error.what() << std::endl;
      GTEST_SKIP() << error.what();
    }
  }
};

const testing::Environment* const needs_device = testing::AddGlobalTestEnvironment(new NeedsDevice);

}  // namespace
}  // namespace headrace

#include "contract/communicator_under_test.h"

headrace::CommunicatorUnderTest headrace::communicator_under_test(Bytes device_memory_bytes) {
  auto device = make_cpu_device({.memory_bytes = device_memory_bytes});
  auto communicator = make_single_communicator(*device);
  return {std::move(device), std::move(communicator)};
}

// Each program of the communicator contract says which communicator it is about, and over which device.
#pragma once

#include <memory>

#include "headrace/communicator.h"
#include "headrace/device.h"

namespace headrace {

struct CommunicatorUnderTest {
  std::unique_ptr<Device> device;
  std::unique_ptr<Communicator> communicator;  // after the device, which it uses to its end
};
CommunicatorUnderTest communicator_under_test(Bytes device_memory_bytes);

}  // namespace headrace

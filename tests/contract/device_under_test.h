// Each program of the device contract says which devices it is about.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "headrace/device.h"

namespace headrace {

struct DeviceImplementation {
  const char* name;  // in the names of its tests
  std::function<std::unique_ptr<Device>(Bytes memory_bytes)> make;
};
std::vector<DeviceImplementation> device_implementations();

}  // namespace headrace

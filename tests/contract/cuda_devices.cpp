#include "contract/device_under_test.h"

std::vector<headrace::DeviceImplementation> headrace::device_implementations() {
  return {{"cuda", [](Bytes bytes) { return make_cuda_device({.memory_bytes = bytes}); }}};
}

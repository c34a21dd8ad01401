// The delayed device shows an order that no event enforces.
#include "contract/device_under_test.h"

std::vector<headrace::DeviceImplementation> headrace::device_implementations() {
  return {
      {"cpu", [](Bytes bytes) { return make_cpu_device({.memory_bytes = bytes}); }},
      {"cpu_delayed",
       [](Bytes bytes) { return make_cpu_device({.memory_bytes = bytes, .largest_delay_seconds = 0.002}); }},
      {"cpu_paced",
       [](Bytes bytes) { return make_cpu_device({.memory_bytes = bytes, .link_bytes_per_second = 1e9}); }},
  };
}

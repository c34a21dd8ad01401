#include "src/model/null_device.h"

namespace headrace {
namespace {

constexpr Bytes capacity = Bytes{1} << 46;  // more than any model, less than the address space
constexpr std::uintptr_t arena_address = 4096;

}  // namespace

NullDevice::NullDevice(int compute_threads) {
  info_.name = "null";
  info_.memory_capacity_bytes = capacity;
  info_.host_addressable = true;
  info_.compute_threads = compute_threads;
}

std::byte* NullDevice::arena() {
  return reinterpret_cast<std::byte*>(arena_address);
}

}  // namespace headrace

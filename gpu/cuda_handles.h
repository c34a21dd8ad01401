// Owners of CUDA's handles. A close ignores its status: after a failure of the device it says so again, and
// the failure itself is thrown where someone waits.
#pragma once

#include <cuda_runtime_api.h>

#include "headrace/owned.h"

namespace headrace {

struct CudaStreamTraits {
  using Raw = cudaStream_t;
  static Raw none() noexcept { return nullptr; }
  static void close(Raw stream) noexcept { cudaStreamDestroy(stream); }
};
using CudaStream = Owned<CudaStreamTraits>;

struct CudaEventTraits {
  using Raw = cudaEvent_t;
  static Raw none() noexcept { return nullptr; }
  static void close(Raw event) noexcept { cudaEventDestroy(event); }
};
using CudaEvent = Owned<CudaEventTraits>;

struct DeviceBytesTraits {
  using Raw = void*;
  static Raw none() noexcept { return nullptr; }
  static void close(Raw memory) noexcept { cudaFree(memory); }
};
using DeviceBytes = Owned<DeviceBytesTraits>;

struct PinnedBytesTraits {
  using Raw = void*;
  static Raw none() noexcept { return nullptr; }
  static void close(Raw memory) noexcept { cudaFreeHost(memory); }
};
using PinnedBytes = Owned<PinnedBytesTraits>;

}  // namespace headrace

#include "headrace/gpu_build.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <nccl.h>

namespace headrace {

GpuBuild gpu_build() {
  return {.built = true,
          .toolkit = fmt::format("CUDA {}.{}", CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10),
          .collectives = fmt::format("NCCL {}.{}.{}", NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH)};
}

}  // namespace headrace

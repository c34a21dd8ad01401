// What this build's GPU backend was compiled with; for messages.
#pragma once

#include <string>

namespace headrace {

struct GpuBuild {
  bool built = false;       // without it, a stub stands for the backend
  std::string toolkit;      // "CUDA 12.8"
  std::string collectives;  // "NCCL 2.26.2"
};
GpuBuild gpu_build();

}  // namespace headrace

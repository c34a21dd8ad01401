// CUDA's statuses as errors.
#pragma once

#include <cuda_runtime_api.h>

#include <string>
#include <string_view>

namespace headrace {

// Throws Error naming the operation, what CUDA says, and what to do about it. `what` is "allocate 4 GiB".
void check_cuda(cudaError_t status, std::string_view what);
std::string cuda_error_text(cudaError_t status);

}  // namespace headrace

// cuBLAS's statuses as errors.
#pragma once

#include <cublasLt.h>
#include <fmt/format.h>

#include <string_view>

#include "headrace/errors.h"

namespace headrace {

// Throws Error naming the operation and what cuBLAS says. `what` is "describe a matrix".
inline void check_cublas(cublasStatus_t status, std::string_view what) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw Error(fmt::format("cuBLAS could not {}: {}", what, cublasLtGetStatusName(status)));
}

}  // namespace headrace

// Refusals of cuBLAS as errors of ours.
#pragma once

#include <cublasLt.h>
#include <fmt/format.h>

#include <string_view>

#include "headrace/errors.h"

namespace headrace {

// `what` was asked for, and of what: "algorithm for the product of ...".
inline void check_cublas(cublasStatus_t status, std::string_view what) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw Error(fmt::format("cuBLAS refuses the {}: {}", what, cublasLtGetStatusName(status)));
}

}  // namespace headrace

// NCCL's results as errors.
#pragma once

#include <nccl.h>

#include <string>
#include <string_view>

namespace headrace {

// What NCCL says of `result`, with its last error (`communicator` may be null).
std::string nccl_error_text(ncclResult_t result, ncclComm_t communicator);

// Throws Error naming `what` (the operation, or the call) unless the result is ncclSuccess.
void check_nccl(ncclResult_t result, std::string_view what, ncclComm_t communicator = nullptr);

}  // namespace headrace

#include "gpu/nccl_status.h"

#include "headrace/errors.h"

namespace headrace {

std::string nccl_error_text(ncclResult_t result, ncclComm_t communicator) {
  std::string text = ncclGetErrorString(result);
  if (const char* last = ncclGetLastError(communicator); last != nullptr && *last != '\0')
    text += fmt::format(" ({})", last);
  return text;
}

void check_nccl(ncclResult_t result, std::string_view what, ncclComm_t communicator) {
  if (result == ncclSuccess) return;
  throw Error(fmt::format("NCCL failed in {}: {}. NCCL_DEBUG=INFO makes it say more.", what,
                          nccl_error_text(result, communicator)));
}

}  // namespace headrace

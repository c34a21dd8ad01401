#include "gpu/cuda_status.h"

#include "headrace/errors.h"

namespace headrace {
namespace {

std::string_view advice(cudaError_t status) {
  switch (status) {
    case cudaErrorMemoryAllocation:
      return " Other programs may hold the device's memory (nvidia-smi lists them): end them, or give a "
             "smaller "
             "--device-memory.";
    case cudaErrorNoDevice:
      return " Use --device cpu, or look at what nvidia-smi and CUDA_VISIBLE_DEVICES say.";
    case cudaErrorInsufficientDriver:
      return " Install a newer NVIDIA driver, or use --device cpu.";
    case cudaErrorECCUncorrectable:
      return " The device's memory is faulty: reset it (nvidia-smi -r) or take another one.";
    default:
      return "";
  }
}

}  // namespace

std::string cuda_error_text(cudaError_t status) {
  return fmt::format("{} ({})", cudaGetErrorString(status), cudaGetErrorName(status));
}

void check_cuda(cudaError_t status, std::string_view what) {
  if (status == cudaSuccess) return;
  throw Error(fmt::format("CUDA could not {}: {}.{}", what, cuda_error_text(status), advice(status)));
}

}  // namespace headrace

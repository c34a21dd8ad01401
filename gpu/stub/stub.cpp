// What stands for the GPU backend in a build without it: errors that say how to get it.
#include "headrace/communicator.h"
#include "headrace/device.h"
#include "headrace/errors.h"
#include "headrace/gpu_build.h"
#include "headrace/kernels.h"
#include "headrace/ops.h"

namespace headrace {
namespace {

[[noreturn]] void not_built() {
  throw UsageError(
      "this build has no CUDA backend. Use --device cpu, or build with one: cmake --preset cuda && cmake "
      "--build --preset cuda (needs the CUDA Toolkit with cuBLAS and NCCL).");
}

}  // namespace

GpuBuild gpu_build() {
  return {};
}
std::unique_ptr<Device> make_cuda_device(const CudaDeviceOptions&) {
  not_built();
}
Bytes available_cuda_memory(int) {
  not_built();
}
std::unique_ptr<DeviceKernels> make_cuda_kernels(Device&) {
  not_built();
}
std::unique_ptr<Ops> make_cuda_ops(Device&, DeviceMemory&) {
  not_built();
}
std::unique_ptr<Communicator> make_nccl_communicator(Device&, std::unique_ptr<Communicator>,
                                                     const CommunicatorOptions&) {
  not_built();
}

}  // namespace headrace

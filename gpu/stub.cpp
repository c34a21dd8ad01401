// What stands for the GPU backend in a build without it: errors that say how to get it.
#include "headrace/communicator.h"
#include "headrace/device.h"
#include "headrace/errors.h"

namespace headrace {

std::unique_ptr<Device> make_cuda_device(Bytes) {
  throw UsageError(
      "this program was built without CUDA. Use --device cpu, or a build with the CUDA backend.");
}

std::unique_ptr<Communicator> make_nccl_communicator(Device&, const CommunicatorOptions&) {
  throw UsageError(
      "this program was built without NCCL. Use --device cpu with mpirun, or a build with the CUDA backend.");
}

}  // namespace headrace

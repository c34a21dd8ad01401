// What stands for the GPU backend in a build without it: errors that say how to get it.
#include "headrace/communicator.h"
#include "headrace/device.h"
#include "headrace/errors.h"

namespace headrace {

std::unique_ptr<Device> make_cuda_device(Bytes) {
  throw UsageError(
      "this build has no CUDA backend; it comes with the `cuda` preset. Use --device cpu, or configure with "
      "that preset.");
}

std::unique_ptr<Communicator> make_nccl_communicator(Device&, const CommunicatorOptions&) {
  throw UsageError(
      "this build has no NCCL backend; it comes with the `cuda` preset. Use --device cpu with mpirun, or "
      "configure with that "
      "preset.");
}

}  // namespace headrace

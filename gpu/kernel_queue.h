// Where kernels are launched: one stream of a device, or nowhere when memory is only being measured.
#pragma once

#include <cuda_runtime_api.h>

namespace headrace {

class KernelQueue {
 public:
  virtual ~KernelQueue() = default;
  // False: launches do nothing.
  virtual bool active() const = 0;
  virtual cudaStream_t stream() const = 0;
  // Before a launch. `name` (static storage) names the kernel in errors and traces.
  virtual void launching(const char* name) = 0;
  // After it: a refused launch becomes the device's failure, thrown by the next wait.
  virtual void launched(const char* name) = 0;
};

// A queue that launches nothing.
KernelQueue& idle_queue();

}  // namespace headrace

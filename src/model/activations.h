// Activations of a micro-batch on the device's stack.
#pragma once

#include "headrace/memory.h"
#include "headrace/ops.h"

namespace headrace {

// The rows of a micro-batch.
struct BatchShape {
  std::int64_t batch = 0, sequence = 0, width = 0;
  DType dtype = DType::f32;

  std::int64_t rows() const { return batch * sequence; }
};

// A rows x columns matrix of activations on the stack.
Matrix push_activations(DeviceMemory& memory, const BatchShape& shape, std::int64_t columns);
float* push_floats(DeviceMemory& memory, std::int64_t numel);

}  // namespace headrace

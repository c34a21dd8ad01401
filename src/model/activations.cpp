#include "src/model/activations.h"

namespace headrace {

Matrix push_activations(DeviceMemory& memory, const BatchShape& shape, std::int64_t columns) {
  const Bytes bytes = static_cast<Bytes>(shape.rows() * columns) * size_of(shape.dtype);
  return matrix(memory.push(MemoryTag::activations, bytes), shape.dtype, shape.rows(), columns);
}

float* push_floats(DeviceMemory& memory, std::int64_t numel) {
  return reinterpret_cast<float*>(
      memory.push(MemoryTag::activations, static_cast<Bytes>(numel) * sizeof(float)));
}

}  // namespace headrace

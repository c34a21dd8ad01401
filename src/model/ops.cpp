#include "headrace/ops.h"

#include "headrace/errors.h"
#include "src/model/cpu_ops.h"

namespace headrace {

Matrix matrix(std::byte* data, DType dtype, std::int64_t rows, std::int64_t columns) {
  return {data, dtype, rows, columns, columns};
}

Matrix row_range(const Matrix& whole, std::int64_t first, std::int64_t rows) {
  HEADRACE_CHECK(first >= 0 && first + rows <= whole.rows, "rows {} to {} of {}", first, first + rows,
                 whole.rows);
  Matrix part = whole;
  part.data += static_cast<Bytes>(first * whole.stride) * size_of(whole.dtype);
  part.rows = rows;
  return part;
}

std::unique_ptr<Ops> make_cpu_ops(Device& device, DeviceMemory& memory) {
  HEADRACE_CHECK(device.info().host_addressable, "CPU operations on device {}", device.info().name);
  return std::make_unique<CpuOps>(device, memory);
}

}  // namespace headrace

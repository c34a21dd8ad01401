#include "aio/blocking_request.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace headrace::aio {

std::int64_t carry_out(const Request& request, std::byte* memory, Bytes bytes) {
  const Operation& operation = *request.operation;
  const bool read = operation.direction == IoDirection::read, bounced = memory != request.address();
  const auto offset = static_cast<off_t>(request.offset());
  if (bounced && !read) std::memcpy(memory, request.address(), bytes);
  const ssize_t moved =
      read ? ::pread(operation.fd, memory, bytes, offset) : ::pwrite(operation.fd, memory, bytes, offset);
  if (moved < 0) return -errno;
  if (bounced && read) std::memcpy(request.address(), memory, static_cast<std::size_t>(moved));
  return moved;
}

}  // namespace headrace::aio

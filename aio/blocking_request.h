// A request carried out by pread or pwrite, on the thread that asks.
#pragma once

#include <cstddef>
#include <cstdint>

#include "aio/request_queue.h"

namespace headrace::aio {

// Moves `bytes` of the request by way of `memory`: the request's own, or aligned memory where it is bounced.
// Returns a count of bytes or a negated errno value.
std::int64_t carry_out(const Request& request, std::byte* memory, Bytes bytes);

}  // namespace headrace::aio

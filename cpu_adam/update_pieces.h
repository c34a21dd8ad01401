// The pieces in which the pool updates spans, however many and small or few and large they are; the same for
// any number of threads.
#pragma once

#include <functional>
#include <span>

#include "headrace/optimizer_update.h"

namespace headrace {

// Calls body with parts that together are the spans, each once, on the threads of the CPU pool, and waits.
// Parts start on multiples of quantised_block_numel of their span.
void for_each_part(std::span<const GroupSpan> spans,
                   const std::function<void(const UpdateSpan& part, std::uint32_t group)>& body);

}  // namespace headrace

// The pieces in which the pool updates a block; the same for any number of threads.
#pragma once

#include <functional>

#include "headrace/optimizer_update.h"

namespace headrace {

// Calls body with each piece of the span, on the threads of the CPU pool, and waits.
void for_each_piece(const UpdateSpan& span, const std::function<void(const UpdateSpan& piece)>& body);

}  // namespace headrace

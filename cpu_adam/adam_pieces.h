// The pieces in which the pool updates a block; the same for any number of threads.
#pragma once

#include <functional>

#include "headrace/adam.h"

namespace headrace {

// Calls body with each piece of the block, on the threads of the CPU pool, and waits.
void for_each_piece(const AdamBlock& block, const std::function<void(const AdamBlock& piece)>& body);

}  // namespace headrace

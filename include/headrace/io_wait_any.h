// Waits for whichever of several transfers ends first.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "headrace/io_engine.h"

namespace headrace {

// Blocks until one of the tickets is done, and returns the places of all that are known to be: at least one,
// in ascending order. Their wait() does not block. None of the tickets may be empty; without any, there is
// nothing to wait for and the answer is empty. Tickets of one engine and one device cost one sleep in the
// kernel; others, and those of a device that another thread waits for, are looked at every 50 microseconds.
std::vector<std::size_t> wait_for_any(std::span<IoTicket* const> tickets);

}  // namespace headrace

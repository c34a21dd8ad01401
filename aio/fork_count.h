// Which process this is, told apart by the forks since the program began: what getpid tells too, at the price
// of a system call for each submission.
#pragma once

#include <cstdint>

namespace headrace::aio {

// Any thread. A child of fork() has a number that its parent's never had; one made by a bare clone() has not.
std::uint32_t fork_count();

}  // namespace headrace::aio

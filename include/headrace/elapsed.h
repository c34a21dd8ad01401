// Wall-clock time of what a thread does itself.
#pragma once

#include <chrono>

namespace headrace {

inline double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace headrace

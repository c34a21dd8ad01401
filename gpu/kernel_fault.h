// What a kernel tells the host about data that it cannot use: a word in host memory that kernels reach, all
// zeros until then. The first fault stays. The host reads it once the lane has passed the kernel.
#pragma once

namespace headrace {

inline constexpr int no_fault = 0;
// `where`: index into TokenBatch::ids. `value`: the id there.
inline constexpr int token_outside_vocabulary = 1;

struct KernelFault {
  int code = no_fault;
  long long where = 0, value = 0;
};

}  // namespace headrace

// What a kernel says when its input is wrong: it cannot throw. Plain memory that both the kernel and the host
// see; the first to find code 0 writes it.
#pragma once

#include <string>

namespace headrace {

struct KernelFault {
  enum Code : int { none = 0, token_outside_vocabulary = 1 };
  int code = none;
  long long where = 0, value = 0;
};
std::string describe(const KernelFault& fault);

}  // namespace headrace

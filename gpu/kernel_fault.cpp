#include "gpu/kernel_fault.h"

#include "headrace/errors.h"

namespace headrace {

std::string describe(const KernelFault& fault) {
  if (fault.code == KernelFault::token_outside_vocabulary)
    return fmt::format("token {} of the batch has id {}, which is outside the vocabulary", fault.where,
                       fault.value);
  return fmt::format("a kernel reported fault {} ({}, {})", fault.code, fault.where, fault.value);
}

}  // namespace headrace

// The instruction sets that kernels of the CPU are compiled for. The bodies give the same bits (DESIGN
// section 9); the widest that the CPU has is chosen at run time, or the one that HEADRACE_ISA names.
#pragma once

#include <cstdint>
#include <string_view>

namespace headrace {

enum class Isa : std::uint8_t { scalar, avx2, avx512 };
std::string_view name_of(Isa isa);
bool supported(Isa isa);
// The widest supported one, or HEADRACE_ISA's (UsageError when unknown or not supported).
Isa best_isa();

}  // namespace headrace

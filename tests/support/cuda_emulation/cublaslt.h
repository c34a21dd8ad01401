// What tests ask of the emulated cuBLASLt.
//
// It does the worst that the real library may: parts of a sum are computed apart, how many depends on the
// alignments and the workspace that the choice of an algorithm was promised, and they meet rounded to the
// output's type where the reduction schemes allow that. Violations: an operand less aligned than promised, a
// product whose algorithm was chosen for another or left to the call, operands that the result overwrites, a
// workspace that is not aligned to 256 bytes, descriptors used after their end.
#pragma once

#include <cstddef>
#include <cstdint>

namespace cuda_emulation {

// Since the program began.
std::uint64_t algorithms_chosen();
// Handles, descriptors, layouts and preferences not yet destroyed.
std::size_t cublaslt_objects();

}  // namespace cuda_emulation

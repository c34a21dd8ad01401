// Chooses the instruction set at run time and offers its kernels under the names of optimizer_update.h.
#include <array>
#include <cstdlib>
#include <string>

#include "cpu_adam/kernel_table.h"
#include "cpu_adam/update_piece.h"
#include "headrace/errors.h"

namespace headrace {
namespace {

constexpr std::array widest_first = {Isa::avx512, Isa::avx2, Isa::scalar};

const KernelTable* table_of(Isa isa) {
  switch (isa) {
    case Isa::avx512:
      return avx512_kernels;
    case Isa::avx2:
      return avx2_kernels;
    case Isa::scalar:
      return scalar_kernels;
  }
  return nullptr;
}

// __builtin_cpu_supports also asks the operating system whether it saves the wide registers.
bool cpu_has(Isa isa) {
#if defined(__x86_64__)
  switch (isa) {
    case Isa::avx512:
      return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
             __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
             __builtin_cpu_supports("f16c");
    case Isa::avx2:
      return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
             __builtin_cpu_supports("f16c");
    case Isa::scalar:
      return true;
  }
#endif
  return isa == Isa::scalar;
}

}  // namespace

std::string_view name_of(Isa isa) {
  switch (isa) {
    case Isa::avx512:
      return "avx512";
    case Isa::avx2:
      return "avx2";
    case Isa::scalar:
      break;
  }
  return "scalar";
}

bool supported(Isa isa) {
  return table_of(isa) != nullptr && cpu_has(isa);
}

Isa choose_isa(const char* name) {
  const std::string_view wanted = name == nullptr ? "" : name;
  for (const Isa isa : widest_first) {
    if (wanted.empty() && supported(isa)) return isa;
    if (wanted != name_of(isa)) continue;
    if (supported(isa)) return isa;
    throw UsageError(fmt::format("HEADRACE_ISA={}: this CPU has no such instructions; unset it to use {}",
                                 wanted, name_of(choose_isa(nullptr))));
  }
  throw UsageError(
      fmt::format("HEADRACE_ISA={} is unknown; use scalar, avx2 or avx512, or unset it", wanted));
}

Isa best_isa() {
  static const Isa isa = choose_isa(std::getenv("HEADRACE_ISA"));
  return isa;
}

const KernelTable& kernels_of(Isa isa) {
  if (!supported(isa)) {
    throw UsageError(fmt::format("this CPU has no {} instructions; the widest it has are {}", name_of(isa),
                                 name_of(choose_isa(nullptr))));
  }
  return *table_of(isa);
}

void optimizer_update(const UpdateSpan& span, const OptimizerArguments& arguments, Isa isa) {
  require_meaning(span, arguments);
  update_piece(kernels_of(isa), span, constants_of(arguments), stores_for(span.numel));
}

void sum_slices(std::span<const void* const> slices, DType dtype, std::uint64_t numel, float* sum,
                bool accumulate) {
  kernels_of(best_isa()).sum_slices(slices.data(), slices.size(), dtype, numel, sum, accumulate);
}

void round_and_norm(const float* sum, void* rounded, DType dtype, std::uint64_t numel, double* partials) {
  kernels_of(best_isa()).round_and_norm(sum, rounded, dtype, numel, partials);
}

void round_to(const float* high, void* low, DType dtype, std::uint64_t numel) {
  kernels_of(best_isa()).round_to(high, low, dtype, numel);
}

}  // namespace headrace

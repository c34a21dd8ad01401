// Optimizer arithmetic over spans of host memory: pure functions, no hidden step state, no threads of their
// own unless the name says so. The scalar, AVX2 and AVX-512 bodies give the same bits (DESIGN section 9); the
// widest that the CPU has is chosen at run time, or the one that HEADRACE_ISA=scalar|avx2|avx512 names.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "headrace/dtype.h"

namespace headrace {

enum class Isa : std::uint8_t { scalar, avx2, avx512 };
std::string_view name_of(Isa isa);
bool supported(Isa isa);
// The widest supported one, or HEADRACE_ISA's (UsageError when unknown or not supported).
Isa best_isa();

// Hyper-parameters of one update. `step` counts from 1. `gradient_scale` folds clipping, loss scale and
// averaging.
struct AdamArguments {
  double learning_rate = 1e-3;
  double beta1 = 0.9, beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0.0;
  bool decoupled = true;  // AdamW
  std::uint64_t step = 1;
  float gradient_scale = 1.0f;
};

// The fp32 factors of one update: computed in double from the arguments and rounded once, so that every
// implementation (CUDA included) starts from the same bits.
struct AdamConstants {
  float gradient_scale;
  float beta1, one_minus_beta1;
  float beta2, one_minus_beta2;
  float sqrt_bias2;  // sqrt(1 - beta2^step)
  float epsilon;
  float coupled_decay;  // weight_decay of Adam; 0 for AdamW
  float decay;          // 1 - learning_rate * weight_decay for AdamW; 1 for Adam
  float step_size;      // learning_rate / (1 - beta1^step)
};
// Throws UsageError on a negative or NaN rate, decay or epsilon, on a beta outside [0, 1) and on step 0.
AdamConstants constants_of(const AdamArguments& arguments);

// One contiguous range of elements. Updated in place: master, exp_avg, exp_avg_sq; written: low_precision
// (when not null). Any alignment of the element type; nothing beyond `numel` is touched.
struct AdamBlock {
  float* master = nullptr;
  float* exp_avg = nullptr;
  float* exp_avg_sq = nullptr;
  const void* gradient = nullptr;
  DType gradient_dtype = DType::f32;
  void* low_precision = nullptr;
  DType low_precision_dtype = DType::bf16;
  std::uint64_t numel = 0;
};

// One pass over memory: unscale/clip + Adam(W) + write-out. On the calling thread. Each operation is fp32,
// rounded once:
//   g = gradient * gradient_scale            g = fma(coupled_decay, p, g) when coupled_decay is not 0
//   m = fma(beta1, m, one_minus_beta1 * g)   v = fma(beta2, v, (one_minus_beta2 * g) * g)
//   d = sqrt(v) / sqrt_bias2 + epsilon       p = p * decay - step_size * (m / d)
void adam_update(const AdamBlock& block, const AdamArguments& arguments, Isa isa = best_isa());
// The same, split over the threads of the shared CPU pool (cpu_pool.h). Blocks until done. Same bits for any
// thread count.
void adam_update_parallel(const AdamBlock& block, const AdamArguments& arguments);

// The kernels of kernels.h over host memory, on the calling thread, with best_isa(). No slices sum to 0.
void sum_slices(std::span<const void* const> slices, DType dtype, std::uint64_t numel, float* sum,
                bool accumulate);
void round_and_norm(const float* sum, void* rounded, DType dtype, std::uint64_t numel, double* partials);
void round_to(const float* high, void* low, DType dtype, std::uint64_t numel);

}  // namespace headrace

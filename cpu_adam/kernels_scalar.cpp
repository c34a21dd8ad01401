// The oracle, and the kernels of a CPU without AVX2: vectors of one lane. std::fma is exact without FMA
// instructions too.
#include <cmath>

#include "cpu_adam/kernel_body.h"

namespace headrace {
namespace {

struct Scalar {
  static constexpr int width = 1;
  using Floats = float;
  using Divisor = float;

  static Floats set(float x) { return x; }
  static Divisor set_divisor(float x) { return x; }
  static Floats load(const float* p, Whole) { return *p; }
  static Floats load(const bf16* p, Whole) { return to_float(*p); }
  static void store(float* p, Floats x, Whole) { *p = x; }
  static void store(bf16* p, Floats x, Whole) { *p = to_bf16(x); }

  // A vector of one lane is never partial.
  template <class T>
  static Floats load(const T* p, First) {
    return load(p, Whole{});
  }
  template <class T>
  static void store(T* p, Floats x, First) {
    store(p, x, Whole{});
  }

  static Floats add(Floats a, Floats b) { return a + b; }
  static Floats sub(Floats a, Floats b) { return a - b; }
  static Floats mul(Floats a, Floats b) { return a * b; }
  static Floats div(Floats a, Floats b) { return a / b; }
  static Floats sqrt(Floats a) { return std::sqrt(a); }
  static Floats fma(Floats a, Floats b, Floats c) { return std::fma(a, b, c); }

  template <class T>
  static Floats rounded(Floats x) {
    if constexpr (std::is_same_v<T, bf16>) return to_float(to_bf16(x));
    return x;
  }

  struct SquareSums {
    double lanes[norm_lanes] = {};
    void add(int group, Floats x) { lanes[group] += static_cast<double>(x) * static_cast<double>(x); }
    double lane(int i) const { return lanes[i]; }
  };
};

}  // namespace

const KernelTable* const scalar_kernels = &table_of<Scalar>;

}  // namespace headrace

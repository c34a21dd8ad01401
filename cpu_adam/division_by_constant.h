// Correctly rounded division by a constant without the divider, which the optimizer's other division and its
// square root keep busy: the same bits as IEEE division for every dividend that a square root can give.
//
// high + low is 1/b to twice the precision, so q = fma(a, high, a * low) is a / b within one ulp; the
// residual r = fma(-b, q, a) is then exact, and fma(r, high, q) is a / b correctly rounded (Markstein 1990:
// `high` is 1/b correctly rounded). With b in [2^-27, 1] and a = sqrt(v), zero or in [2^-75, 2^64), nothing
// overflows, and what underflows is still a multiple of 2^-149. Zeros and infinities divide to themselves;
// NaN stays NaN.
#pragma once

namespace headrace {
namespace {

template <class V>
struct ConstantDivisor {
  typename V::Floats minus_b, high, low;

  [[gnu::always_inline]] static ConstantDivisor of(float x) {
    const auto divisor = V::set(x), one = V::set(1.0f);
    const auto reciprocal = one / divisor;
    const auto residual = V::fma(-divisor, reciprocal, one);
    return {-divisor, reciprocal, residual / divisor};
  }
};

// V::zero_or_infinite_else(a, q) is a where a is a zero or an infinity, else q.
template <class V>
[[gnu::always_inline]] inline typename V::Floats quotient(typename V::Floats a,
                                                          const ConstantDivisor<V>& by) {
  const auto near = V::fma(a, by.high, a * by.low);
  const auto residual = V::fma(by.minus_b, near, a);
  return V::zero_or_infinite_else(a, V::fma(residual, by.high, near));
}

}  // namespace
}  // namespace headrace

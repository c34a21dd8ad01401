// The arrays of Adam with fp32 states as a span of optimizer_update.h.
#pragma once

#include "headrace/optimizer_update.h"

namespace headrace::test {

struct AdamArrays {
  float* master = nullptr;
  float* exp_avg = nullptr;
  float* exp_avg_sq = nullptr;
  const void* gradient = nullptr;
  DType gradient_dtype = DType::f32;
  void* low_precision = nullptr;
  DType low_precision_dtype = DType::bf16;
  std::uint64_t numel = 0;

  operator UpdateSpan() const {  // NOLINT: stands for one
    const auto bytes = [](float* values) { return reinterpret_cast<std::byte*>(values); };
    UpdateSpan span;
    span.state.master = bytes(master);
    span.state.moments[0].values = bytes(exp_avg);
    span.state.moments[1].values = bytes(exp_avg_sq);
    span.gradient = gradient;
    span.gradient_dtype = gradient_dtype;
    span.low_precision = low_precision;
    span.low_precision_dtype = low_precision_dtype;
    span.numel = numel;
    return span;
  }
};

}  // namespace headrace::test

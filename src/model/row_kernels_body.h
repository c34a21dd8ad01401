// The bodies of row_kernels.h, compiled once per instruction set by row_kernels_*.cpp.
#pragma once

#include <cmath>
#include <cstdint>

#include "src/model/row_kernels.h"
#include "src/model/vector_math.h"

namespace headrace {
namespace {

// ---- norms. centred: a layer norm; else an RMS norm

template <bool centred, class T>
void norm_row(const T* x, const NormRows& a, std::int64_t row) {
  const auto* scale = static_cast<const T*>(a.scale);
  const auto* shift = static_cast<const T*>(a.shift);
  T* y = static_cast<T*>(a.y) + row * a.width;
  const float count = static_cast<float>(a.width);
  float m = 0.0f;
  if constexpr (centred) {
    Floats sum{};
    for_each_group(a.width, [&](std::int64_t i, auto part) { sum += part.get(x + i); });
    m = sum_of(sum) / count;
    a.mean[row] = m;
  }
  Floats squares{};
  for_each_group(a.width, [&](std::int64_t i, auto part) {
    const Floats value = part.get(x + i, m) - m;
    squares += value * value;
  });
  const float r = 1.0f / std::sqrt(sum_of(squares) / count + a.epsilon);
  a.rstd[row] = r;
  for_each_group(a.width, [&](std::int64_t i, auto part) {
    Floats result = (part.get(x + i) - m) * r * part.get(scale + i);
    if constexpr (centred) result += part.get(shift + i);
    part.put(y + i, result);
  });
}

template <class T, bool centred>
void norm(const NormRows& a, std::int64_t begin, std::int64_t end) {
  for (std::int64_t row = begin; row < end; ++row) {
    const std::int64_t at = row * a.width;
    const T* x = static_cast<const T*>(a.x) + at;
    if (a.delta != nullptr) {
      const T* delta = static_cast<const T*>(a.delta) + at;
      T* sum = static_cast<T*>(a.sum) + at;
      for_each_group(a.width, [&](std::int64_t i, auto part) {
        part.put(sum + i, part.get(x + i) + part.get(delta + i));
      });
      x = sum;
    }
    norm_row<centred>(x, a, row);
  }
}

template <class T, bool centred>
void norm_backward(const NormBackwardRows& a, std::int64_t begin, std::int64_t end, float* scale_sum,
                   float* shift_sum) {
  const auto* scale = static_cast<const T*>(a.scale);
  const float count = static_cast<float>(a.width);
  for (std::int64_t row = begin; row < end; ++row) {
    const T* dy = static_cast<const T*>(a.dy) + row * a.width;
    const T* x = static_cast<const T*>(a.x) + row * a.width;
    T* dx = static_cast<T*>(a.dx) + row * a.width;
    const float m = centred ? a.mean[row] : 0.0f, r = a.rstd[row];
    Floats sum{}, sum_normal{};
    for_each_group(a.width, [&](std::int64_t i, auto part) {
      const Floats gradient = part.get(dy + i), normal = (part.get(x + i) - m) * r;
      const Floats scaled = gradient * part.get(scale + i);
      sum += scaled;
      sum_normal += scaled * normal;
      part.put(scale_sum + i, part.get(scale_sum + i) + gradient * normal);
      if constexpr (centred) part.put(shift_sum + i, part.get(shift_sum + i) + gradient);
    });
    const float mean_gradient = centred ? sum_of(sum) / count : 0.0f,
                mean_normal = sum_of(sum_normal) / count;
    for_each_group(a.width, [&](std::int64_t i, auto part) {
      const Floats normal = (part.get(x + i) - m) * r;
      Floats result = (part.get(dy + i) * part.get(scale + i) - mean_gradient - normal * mean_normal) * r;
      if (a.add_to_dx) result += part.get(dx + i);
      part.put(dx + i, result);
    });
  }
}

template <class T>
void rms_norm_backward(const NormBackwardRows& a, std::int64_t begin, std::int64_t end, float* scale_sum) {
  norm_backward<T, false>(a, begin, end, scale_sum, nullptr);
}

// ---- GELU, tanh approximation: x * (1 + tanh(u)) / 2 = x * sigmoid(2u), u = sqrt(2/pi) * (x + 0.044715 x^3)

inline constexpr float gelu_slope = 2.0f * 0.7978845608028654f, gelu_cubic = 0.044715f;

HEADRACE_INLINE Floats gelu_sigmoid(Floats x) {
  return 1.0f / (1.0f + exp_of(x * (x * x * gelu_cubic + 1.0f) * -gelu_slope));
}

template <class T>
void gelu(const void* input, void* output, std::int64_t numel) {
  const T* x = static_cast<const T*>(input);
  T* y = static_cast<T*>(output);
  for_each_group(numel, [&](std::int64_t i, auto part) {
    const Floats value = part.get(x + i);
    part.put(y + i, value * gelu_sigmoid(value));
  });
}

template <class T>
void gelu_backward(const void* input, void* gradient, void* output, std::int64_t numel) {
  const T* x = static_cast<const T*>(input);
  T* d = static_cast<T*>(gradient);
  T* y = static_cast<T*>(output);
  for_each_group(numel, [&](std::int64_t i, auto part) {
    const Floats value = part.get(x + i), sigmoid = gelu_sigmoid(value);
    const Floats slope = (value * value * (3.0f * gelu_cubic) + 1.0f) * gelu_slope;
    part.put(y + i, value * sigmoid);
    part.put(d + i, part.get(d + i) * (sigmoid + value * sigmoid * (1.0f - sigmoid) * slope));
  });
}

// ---- SwiGLU: silu(gate) * up, silu(x) = x * sigmoid(x), silu'(x) = sigmoid(x) * (1 + x * (1 - sigmoid(x)))

HEADRACE_INLINE Floats sigmoid(Floats x) {
  return 1.0f / (1.0f + exp_of(-x));
}

template <class T>
void swiglu(const void* gates, const void* ups, void* output, std::int64_t numel) {
  const T* gate = static_cast<const T*>(gates);
  const T* up = static_cast<const T*>(ups);
  T* y = static_cast<T*>(output);
  for_each_group(numel, [&](std::int64_t i, auto part) {
    const Floats g = part.get(gate + i);
    part.put(y + i, g * sigmoid(g) * part.get(up + i));
  });
}

template <class T>
void swiglu_backward(void* gates, void* ups, void* gradients, std::int64_t numel) {
  T* gate = static_cast<T*>(gates);
  T* up = static_cast<T*>(ups);
  T* d = static_cast<T*>(gradients);
  for_each_group(numel, [&](std::int64_t i, auto part) {
    const Floats g = part.get(gate + i), u = part.get(up + i), dy = part.get(d + i);
    const Floats s = sigmoid(g), silu = g * s;
    part.put(gate + i, dy * u * (s + silu * (1.0f - s)));
    part.put(up + i, dy * silu);
    part.put(d + i, silu * u);
  });
}

// ---- rotary positions

template <class T>
void rotary(void* data, const float* cosines, const float* sines, std::int64_t heads, std::int64_t depth) {
  const std::int64_t half = depth / 2;
  for (std::int64_t head = 0; head < heads; ++head) {
    T* low = static_cast<T*>(data) + head * depth;
    T* high = low + half;
    for_each_group(half, [&](std::int64_t i, auto part) {
      const Floats x0 = part.get(low + i), x1 = part.get(high + i);
      const Floats cosine = part.get(cosines + i), sine = part.get(sines + i);
      part.put(low + i, x0 * cosine - x1 * sine);
      part.put(high + i, x1 * cosine + x0 * sine);
    });
  }
}

// ---- sums

template <class T>
void column_sums(const void* input, std::int64_t rows, std::int64_t width, std::int64_t stride, float* sum) {
  const T* x = static_cast<const T*>(input);
  for_each_group(width, [&](std::int64_t i, auto part) {
    Floats total = part.get(sum + i);
    for (std::int64_t r = 0; r < rows; ++r) total += part.get(x + r * stride + i);
    part.put(sum + i, total);
  });
}

template <class T>
void row_dots(const void* left, const void* right, std::int64_t rows, std::int64_t width, std::int64_t stride,
              float* dot) {
  for (std::int64_t r = 0; r < rows; ++r) {
    const T* a = static_cast<const T*>(left) + r * stride;
    const T* b = static_cast<const T*>(right) + r * stride;
    Floats sum{};
    for_each_group(width, [&](std::int64_t i, auto part) { sum += part.get(a + i) * part.get(b + i); });
    dot[r] = sum_of(sum);
  }
}

// ---- softmax

HEADRACE_INLINE float largest_in(const float* x, std::int64_t n) {
  Floats largest = broadcast(x[0]);
  for_each_group(n, [&](std::int64_t i, auto part) { largest = larger(part.get(x + i, x[0]), largest); });
  return largest_of(largest);
}

template <class T>
HEADRACE_INLINE void clear(T* p, std::int64_t begin, std::int64_t end) {
  for (std::int64_t i = begin; i < end; ++i) p[i] = T{};
}

template <class T>
void softmax(const SoftmaxRows& a) {
  for (std::int64_t r = 0; r < a.rows; ++r) {
    const float* scores = a.scores + r * a.stride;
    T* out = static_cast<T*>(a.probabilities) + r * a.stride;
    const std::int64_t keys = a.first_keys + r;
    const float largest = largest_in(scores, keys);
    // Lanes past the end are far below the maximum and add nothing: exp_of clamps to 1e-38.
    Floats sum{};
    for_each_group(keys, [&](std::int64_t i, auto part) {
      sum += exp_of((part.get(scores + i, largest - 1e30f) - largest) * a.scale);
    });
    const float log_sum = largest * a.scale + std::log(sum_of(sum));
    for_each_group(keys, [&](std::int64_t i, auto part) {
      part.put(out + i, exp_of(part.get(scores + i) * a.scale - log_sum));
    });
    clear(out, keys, a.columns);
    a.log_sum[r] = log_sum;
  }
}

template <class T>
void softmax_backward(const SoftmaxBackwardRows& a) {
  for (std::int64_t r = 0; r < a.rows; ++r) {
    const std::int64_t at = r * a.stride, keys = a.first_keys + r;
    const float* scores = a.scores + at;
    const float* dprobabilities = a.dprobabilities + at;
    T* probabilities = static_cast<T*>(a.probabilities) + at;
    T* dscores = static_cast<T*>(a.dscores) + at;
    const float log_sum = a.log_sum[r], dot = a.dot[r];
    for_each_group(keys, [&](std::int64_t i, auto part) {
      const Floats p = exp_of(part.get(scores + i) * a.scale - log_sum);
      part.put(probabilities + i, p);
      part.put(dscores + i, p * (part.get(dprobabilities + i) - dot) * a.scale);
    });
    clear(probabilities, keys, a.columns);
    clear(dscores, keys, a.columns);
  }
}

template <class T>
void cross_entropy(const CrossEntropyRows& a, std::int64_t begin, std::int64_t end) {
  for (std::int64_t r = begin; r < end; ++r) {
    const float* logits = a.logits + r * a.vocabulary;
    const std::int32_t target = a.targets[r];
    const float largest = largest_in(logits, a.vocabulary);
    Floats sum{};
    for_each_group(a.vocabulary, [&](std::int64_t i, auto part) {
      sum += exp_of(part.get(logits + i, largest - 1e30f) - largest);
    });
    const float log_sum = largest + std::log(sum_of(sum));
    if (a.losses != nullptr) a.losses[r] = static_cast<double>(log_sum) - static_cast<double>(logits[target]);
    if (a.dlogits == nullptr) continue;
    T* d = static_cast<T*>(a.dlogits) + r * a.vocabulary;
    for_each_group(a.vocabulary, [&](std::int64_t i, auto part) {
      part.put(d + i, exp_of(part.get(logits + i) - log_sum) * a.gradient_factor);
    });
    store_first(d + target, (exp_of(broadcast(logits[target] - log_sum)) - 1.0f) * a.gradient_factor, 1);
  }
}

// ---- element by element

template <class T>
void add(const void* left, const void* right, void* output, std::int64_t numel) {
  const T* a = static_cast<const T*>(left);
  const T* b = static_cast<const T*>(right);
  T* out = static_cast<T*>(output);
  for_each_group(numel,
                 [&](std::int64_t i, auto part) { part.put(out + i, part.get(a + i) + part.get(b + i)); });
}

template <class T>
void accumulate(const void* input, float* sum, std::int64_t numel) {
  const T* x = static_cast<const T*>(input);
  for_each_group(numel,
                 [&](std::int64_t i, auto part) { part.put(sum + i, part.get(sum + i) + part.get(x + i)); });
}

template <class T>
void widen(const void* input, float* output, std::int64_t numel) {
  const T* x = static_cast<const T*>(input);
  for_each_group(numel, [&](std::int64_t i, auto part) { part.put(output + i, part.get(x + i)); });
}

template <class T>
void round(const float* x, void* output, std::int64_t numel) {
  T* out = static_cast<T*>(output);
  for_each_group(numel, [&](std::int64_t i, auto part) { part.put(out + i, part.get(x + i)); });
}

template <class T>
constexpr RowKernels body_table{
    .layer_norm = norm<T, true>,
    .rms_norm = norm<T, false>,
    .layer_norm_backward = norm_backward<T, true>,
    .rms_norm_backward = rms_norm_backward<T>,
    .gelu = gelu<T>,
    .gelu_backward = gelu_backward<T>,
    .swiglu = swiglu<T>,
    .swiglu_backward = swiglu_backward<T>,
    .rotary = rotary<T>,
    .column_sums = column_sums<T>,
    .row_dots = row_dots<T>,
    .softmax = softmax<T>,
    .softmax_backward = softmax_backward<T>,
    .cross_entropy = cross_entropy<T>,
    .add = add<T>,
    .accumulate = accumulate<T>,
    .widen = widen<T>,
    .round = round<T>,
};
constexpr RowKernelTables body_tables{
    .f32 = body_table<float>, .bf16 = body_table<bf16>, .f16 = body_table<fp16>};

}  // namespace
}  // namespace headrace

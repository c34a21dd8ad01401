#include "gpu/elementwise_kernels.h"

#include <cmath>

#include "gpu/column_sums.cuh"
#include "gpu/each_element.cuh"

namespace headrace {
namespace {

std::int64_t numel_of(const Matrix& m) {
  return m.rows * m.columns;
}

__device__ float sigmoid(float x) {
  return 1.0f / (1.0f + expf(-x));
}

// ---- GELU: x * (1 + tanh(u)) / 2 = x * sigmoid(2u), 2u = slope * (x + cubic * x^3)

constexpr float gelu_slope = 2.0f * 0.7978845608028654f, gelu_cubic = 0.044715f;

__device__ float gelu_sigmoid(float x) {
  return sigmoid(x * (x * x * gelu_cubic + 1.0f) * gelu_slope);
}

// Far from 0 the sigmoid is flat before its slope overflows.
__device__ float gelu_derivative(float x, float sigmoid_x) {
  const float flatness = sigmoid_x * (1.0f - sigmoid_x);
  if (flatness == 0.0f) return sigmoid_x;
  return sigmoid_x + x * flatness * ((x * x * (3.0f * gelu_cubic) + 1.0f) * gelu_slope);
}

template <class T>
struct Gelu {
  static constexpr int vector_numel = vector_numel_of<T>;
  const T* x;
  T* y;

  template <int n>
  __device__ void run(std::int64_t i) const {
    Floats<n> value = load<n>(x + i);
    for (int k = 0; k < n; ++k) value[k] = value[k] * gelu_sigmoid(value[k]);
    store<n>(y + i, value);
  }
  template <class Visit>
  void pointers(Visit visit) {
    visit(x), visit(y);
  }
};

template <class T>
struct GeluBackward {
  static constexpr int vector_numel = vector_numel_of<T>;
  const T* x;
  T* gradient;
  T* y;

  template <int n>
  __device__ void run(std::int64_t i) const {
    Floats<n> value = load<n>(x + i), d = load<n>(gradient + i);
    for (int k = 0; k < n; ++k) {
      const float sigmoid_x = gelu_sigmoid(value[k]);
      d[k] = d[k] * gelu_derivative(value[k], sigmoid_x);
      value[k] = value[k] * sigmoid_x;
    }
    store<n>(gradient + i, d);
    store<n>(y + i, value);
  }
  template <class Visit>
  void pointers(Visit visit) {
    visit(x), visit(gradient), visit(y);
  }
};

// ---- SwiGLU: gate and up of a row stand side by side, so element i of y is not element i of them

// Where in `hidden` the gate of element i of y is; its up is `width` later.
__device__ std::int64_t gate_of(std::int64_t i, std::int64_t width) {
  return i + i / width * width;
}

template <class T>
struct Swiglu {
  static constexpr int vector_numel = vector_numel_of<T>;
  const T* hidden;
  T* y;
  std::int64_t width;

  template <int n>
  __device__ void run(std::int64_t i) const {
    const T* const gate = hidden + gate_of(i, width);
    Floats<n> g = load<n>(gate);
    const Floats<n> u = load<n>(gate + width);
    for (int k = 0; k < n; ++k) g[k] = g[k] * sigmoid(g[k]) * u[k];
    store<n>(y + i, g);
  }
  template <class Visit>
  void pointers(Visit visit) {
    visit(hidden), visit(y);
  }
};

template <class T>
struct SwigluBackward {
  static constexpr int vector_numel = vector_numel_of<T>;
  T* hidden;
  T* gradient;
  std::int64_t width;

  // silu'(g) = sigmoid(g) * (1 + g * (1 - sigmoid(g)))
  template <int n>
  __device__ void run(std::int64_t i) const {
    T* const gate = hidden + gate_of(i, width);
    const Floats<n> g = load<n>(gate), u = load<n>(gate + width), d = load<n>(gradient + i);
    Floats<n> gate_gradient, up_gradient, output;
    for (int k = 0; k < n; ++k) {
      const float s = sigmoid(g[k]), silu = g[k] * s;
      gate_gradient[k] = d[k] * u[k] * (s + silu * (1.0f - s));
      up_gradient[k] = d[k] * silu;
      output[k] = silu * u[k];
    }
    store<n>(gate, gate_gradient);
    store<n>(gate + width, up_gradient);
    store<n>(gradient + i, output);
  }
  template <class Visit>
  void pointers(Visit visit) {
    visit(hidden), visit(gradient);
  }
};

// Vectors must end within a row.
template <class Pass>
void for_each_gated(KernelQueue& queue, const char* name, Pass pass, std::int64_t rows) {
  constexpr int n = Pass::vector_numel;
  bool aligned = pass.width % n == 0;
  pass.pointers([&](auto& pointer) { aligned = aligned && aligned_for<n>(pointer); });
  for_each_element(queue, name, pass, rows * pass.width, aligned);
}

// ---- Sums and products

template <class T>
struct Add {
  static constexpr int vector_numel = vector_numel_of<T>;
  const T* a;
  const T* b;
  T* sum;

  template <int n>
  __device__ void run(std::int64_t i) const {
    Floats<n> total = load<n>(a + i);
    const Floats<n> other = load<n>(b + i);
    for (int k = 0; k < n; ++k) total[k] = total[k] + other[k];
    store<n>(sum + i, total);
  }
  template <class Visit>
  void pointers(Visit visit) {
    visit(a), visit(b), visit(sum);
  }
};

template <class T>
struct Accumulate {
  static constexpr int vector_numel = vector_numel_of<T, float>;
  const T* x;
  float* sum;

  template <int n>
  __device__ void run(std::int64_t i) const {
    Floats<n> total = load<n>(sum + i);
    const Floats<n> term = load<n>(x + i);
    for (int k = 0; k < n; ++k) total[k] = total[k] + term[k];
    store<n>(sum + i, total);
  }
  template <class Visit>
  void pointers(Visit visit) {
    visit(x), visit(sum);
  }
};

template <class T>
struct Scale {
  static constexpr int vector_numel = vector_numel_of<T>;
  const T* x;
  float factor;
  T* scaled;

  template <int n>
  __device__ void run(std::int64_t i) const {
    Floats<n> value = load<n>(x + i);
    for (int k = 0; k < n; ++k) value[k] = value[k] * factor;
    store<n>(scaled + i, value);
  }
  template <class Visit>
  void pointers(Visit visit) {
    visit(x), visit(scaled);
  }
};

// ---- Sums of columns

template <class T>
struct MatrixRows {
  static constexpr int sums = 1, vector_numel = vector_numel_of<T>;
  const T* x;
  std::int64_t stride;
  bool aligned;  // every row

  template <int n>
  __device__ void add(std::int64_t row, std::int64_t column, std::int64_t count, Floats<n> (&sum)[1]) const {
    const Floats<n> terms = load_some<n>(x + row * stride + column, count, aligned);
    for (int k = 0; k < n; ++k) sum[0][k] += terms[k];
  }
  template <class Visit>
  void pointers(Visit visit) {
    visit(x);
  }
};

// ---- Mean: one block; its first thread adds what all of them load

constexpr int mean_threads = 256, mean_batch = 1024;

__global__ void __launch_bounds__(mean_threads)
    mean_in_order(const double* values, std::int64_t count, float* mean) {
  __shared__ double batch[mean_batch];
  double sum = 0;
  for (std::int64_t begin = 0; begin < count; begin += mean_batch) {
    const std::int64_t left = count - begin;
    const int in_batch = left < mean_batch ? static_cast<int>(left) : mean_batch;
    for (int i = static_cast<int>(threadIdx.x); i < in_batch; i += mean_threads) batch[i] = values[begin + i];
    __syncthreads();
    if (threadIdx.x == 0) {
#pragma unroll 8
      for (int i = 0; i < in_batch; ++i) sum += batch[i];
    }
    __syncthreads();
  }
  if (threadIdx.x == 0) *mean = static_cast<float>(sum / static_cast<double>(count));
}

}  // namespace

void gelu(KernelQueue& queue, const Matrix& x, std::byte* y) {
  with_element(x.dtype, [&](auto element) {
    using T = decltype(element);
    for_each_element(queue, "gelu", Gelu<T>{elements<T>(x.data), elements<T>(y)}, numel_of(x));
  });
}

void gelu_backward(KernelQueue& queue, const Matrix& x, std::byte* dy, std::byte* y) {
  with_element(x.dtype, [&](auto element) {
    using T = decltype(element);
    for_each_element(queue, "gelu backward",
                     GeluBackward<T>{elements<T>(x.data), elements<T>(dy), elements<T>(y)}, numel_of(x));
  });
}

void swiglu(KernelQueue& queue, const Matrix& hidden, std::byte* y) {
  with_element(hidden.dtype, [&](auto element) {
    using T = decltype(element);
    for_each_gated(queue, "swiglu", Swiglu<T>{elements<T>(hidden.data), elements<T>(y), hidden.columns / 2},
                   hidden.rows);
  });
}

void swiglu_backward(KernelQueue& queue, const Matrix& hidden, std::byte* dy) {
  with_element(hidden.dtype, [&](auto element) {
    using T = decltype(element);
    for_each_gated(queue, "swiglu backward",
                   SwigluBackward<T>{elements<T>(hidden.data), elements<T>(dy), hidden.columns / 2},
                   hidden.rows);
  });
}

void add(KernelQueue& queue, const Matrix& a, const std::byte* b, std::byte* sum) {
  with_element(a.dtype, [&](auto element) {
    using T = decltype(element);
    for_each_element(queue, "add", Add<T>{elements<T>(a.data), elements<T>(b), elements<T>(sum)},
                     numel_of(a));
  });
}

void accumulate(KernelQueue& queue, const Matrix& x, float* sum) {
  with_element(x.dtype, [&](auto element) {
    using T = decltype(element);
    for_each_element(queue, "accumulate", Accumulate<T>{elements<T>(x.data), sum}, numel_of(x));
  });
}

void scale(KernelQueue& queue, const Matrix& x, float factor, std::byte* scaled) {
  with_element(x.dtype, [&](auto element) {
    using T = decltype(element);
    for_each_element(queue, "scale", Scale<T>{elements<T>(x.data), factor, elements<T>(scaled)}, numel_of(x));
  });
}

void convert(KernelQueue& queue, const void* from, DType from_dtype, void* to, DType to_dtype,
             std::int64_t numel) {
  with_element(from_dtype, [&](auto from_element) {
    with_element(to_dtype, [&](auto to_element) {
      using From = decltype(from_element);
      using To = decltype(to_element);
      for_each_element(queue, "convert",
                       Convert<From, To>{static_cast<const From*>(from), static_cast<To*>(to)}, numel);
    });
  });
}

Bytes column_sums_scratch_bytes(std::int64_t rows, std::int64_t columns) {
  return partials_bytes(rows, columns, 1);
}

void column_sums(KernelQueue& queue, const Matrix& x, std::byte* sums, float* scratch) {
  with_element(x.dtype, [&](auto element) {
    using T = decltype(element);
    constexpr int n = vector_numel_of<T>;
    const T* data = elements<T>(x.data);
    const MatrixRows<T> source{data, x.stride, aligned_for<n>(data) && x.stride % n == 0};
    sum_columns(queue, "column sums", source, x.rows, x.columns, scratch,
                ColumnTotals<T, 1>{{elements<T>(sums)}});
  });
}

void mean(KernelQueue& queue, const double* values, std::int64_t count, float* mean) {
  launch(queue, "mean", {.grid = 1, .block = mean_threads}, mean_in_order, values, count, mean);
}

}  // namespace headrace

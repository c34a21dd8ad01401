// A row belongs to a team: a warp where rows are short, a block where they are long. Thread t of a team has
// the groups t, t + threads, ... of its row, a group being the elements of one 16-byte load, whether they are
// loaded at once or one by one.
#include "gpu/norm_kernels.h"

#include <algorithm>

#include "gpu/column_sums.cuh"

namespace headrace {
namespace {

constexpr int block_threads = 256;
constexpr int block_warps = block_threads / 32;
// Up to here the rows of all warps of a multiprocessor stay in its first cache between the passes over them.
constexpr std::int64_t widest_of_a_warp = 1024;

// ---- Teams

template <int warps>
struct Team {
  static constexpr int threads = 32 * warps, in_block = block_warps / warps;
  static __device__ int thread() { return static_cast<int>(threadIdx.x) % threads; }
  static __device__ std::int64_t first_row() {
    return static_cast<std::int64_t>(blockIdx.x) * in_block + threadIdx.x / threads;
  }
  static __device__ std::int64_t row_step() { return static_cast<std::int64_t>(gridDim.x) * in_block; }
};

// The sum over the team, in the same order for all of its threads, which all call it.
template <int warps>
__device__ float team_sum(float value) {
  for (int offset = 16; offset > 0; offset /= 2) value += __shfl_xor_sync(~0u, value, offset);
  if constexpr (warps > 1) {
    __shared__ float of_warp[warps];
    __syncthreads();  // the last sums were read
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = value;
    __syncthreads();
    value = of_warp[0];
    for (int w = 1; w < warps; ++w) value += of_warp[w];
  }
  return value;
}

template <int warps, int n>
__device__ float team_sum(const Floats<n>& values) {
  float sum = values[0];
  for (int k = 1; k < n; ++k) sum += values[k];
  return team_sum<warps>(sum);
}

// Calls body(first element, elements left in the row) for each group of this thread.
template <int warps, int n, class Body>
__device__ void for_each_group(std::int64_t width, Body&& body) {
  for (std::int64_t i = Team<warps>::thread() * n; i < width; i += Team<warps>::threads * n)
    body(i, width - i);
}

// ---- Forward

template <class T>
struct NormRows {
  const T* x;
  const T* delta;  // or null
  T* sum;
  const T* scale;
  const T* shift;  // of a layer norm, as mean
  T* y;
  float* mean;
  float* rstd;
  std::int64_t rows, width;
  float epsilon;
  bool aligned;  // every row of every matrix

  template <class Visit>
  void pointers(Visit visit) {
    visit(x), visit(delta), visit(sum), visit(scale), visit(shift), visit(y), visit(mean), visit(rstd);
  }
};

// x + delta, rounded, for the passes that follow: each thread reads what itself wrote.
template <class T, int warps>
__device__ const T* row_to_normalise(const NormRows<T>& a, std::int64_t row) {
  constexpr int n = vector_numel_of<T>;
  const T* x = a.x + row * a.width;
  if (a.delta == nullptr) return x;
  const T* delta = a.delta + row * a.width;
  T* sum = a.sum + row * a.width;
  for_each_group<warps, n>(a.width, [&](std::int64_t i, std::int64_t left) {
    Floats<n> total = load_some<n>(x + i, left, a.aligned);
    const Floats<n> term = load_some<n>(delta + i, left, a.aligned);
    for (int k = 0; k < n; ++k) total[k] += term[k];
    store_some<n>(sum + i, total, left, a.aligned);
  });
  return sum;
}

// centred: a layer norm; else an RMS norm.
template <class T, int warps, bool centred>
__global__ void __launch_bounds__(block_threads) norm_rows(const __grid_constant__ NormRows<T> a) {
  constexpr int n = vector_numel_of<T>;
  const float count = static_cast<float>(a.width);
  for (std::int64_t row = Team<warps>::first_row(); row < a.rows; row += Team<warps>::row_step()) {
    const T* x = row_to_normalise<T, warps>(a, row);
    float m = 0.0f;
    if constexpr (centred) {
      Floats<n> sum = all<n>(0.0f);
      for_each_group<warps, n>(a.width, [&](std::int64_t i, std::int64_t left) {
        const Floats<n> value = load_some<n>(x + i, left, a.aligned);
        for (int k = 0; k < n; ++k) sum[k] += value[k];
      });
      m = team_sum<warps>(sum) / count;
    }
    Floats<n> squares = all<n>(0.0f);
    for_each_group<warps, n>(a.width, [&](std::int64_t i, std::int64_t left) {
      const Floats<n> value = load_some<n>(x + i, left, a.aligned, m);
      for (int k = 0; k < n; ++k) squares[k] += (value[k] - m) * (value[k] - m);
    });
    const float r = 1.0f / sqrtf(team_sum<warps>(squares) / count + a.epsilon);
    T* y = a.y + row * a.width;
    for_each_group<warps, n>(a.width, [&](std::int64_t i, std::int64_t left) {
      Floats<n> value = load_some<n>(x + i, left, a.aligned);
      const Floats<n> scale = load_some<n>(a.scale + i, left, a.aligned);
      for (int k = 0; k < n; ++k) value[k] = (value[k] - m) * r * scale[k];
      if constexpr (centred) {
        const Floats<n> shift = load_some<n>(a.shift + i, left, a.aligned);
        for (int k = 0; k < n; ++k) value[k] += shift[k];
      }
      store_some<n>(y + i, value, left, a.aligned);
    });
    if (Team<warps>::thread() == 0) {
      if constexpr (centred) a.mean[row] = m;
      a.rstd[row] = r;
    }
  }
}

// ---- Backward

template <class T>
struct NormBackwardRows {
  const T* dy;
  const T* x;
  const T* scale;
  const float* mean;
  const float* rstd;
  T* dx;
  bool add_to_dx;
  std::int64_t rows, width;
  bool aligned;

  template <class Visit>
  void pointers(Visit visit) {
    visit(dy), visit(x), visit(scale), visit(mean), visit(rstd), visit(dx);
  }
};

template <class T, int warps, bool centred>
__global__ void __launch_bounds__(block_threads)
    norm_backward_rows(const __grid_constant__ NormBackwardRows<T> a) {
  constexpr int n = vector_numel_of<T>;
  const float count = static_cast<float>(a.width);
  for (std::int64_t row = Team<warps>::first_row(); row < a.rows; row += Team<warps>::row_step()) {
    const T* dy = a.dy + row * a.width;
    const T* x = a.x + row * a.width;
    T* dx = a.dx + row * a.width;
    const float m = centred ? a.mean[row] : 0.0f, r = a.rstd[row];
    // dy * scale and the normalised x of a group.
    Floats<n> scaled, normal;
    const auto read = [&](std::int64_t i, std::int64_t left) {
      scaled = load_some<n>(dy + i, left, a.aligned);
      normal = load_some<n>(x + i, left, a.aligned);
      const Floats<n> scale = load_some<n>(a.scale + i, left, a.aligned);
      for (int k = 0; k < n; ++k) scaled[k] = scaled[k] * scale[k], normal[k] = (normal[k] - m) * r;
    };
    Floats<n> sum = all<n>(0.0f), sum_normal = all<n>(0.0f);
    for_each_group<warps, n>(a.width, [&](std::int64_t i, std::int64_t left) {
      read(i, left);
      for (int k = 0; k < n; ++k) sum[k] += scaled[k], sum_normal[k] += scaled[k] * normal[k];
    });
    const float mean_gradient = centred ? team_sum<warps>(sum) / count : 0.0f;
    const float mean_normal = team_sum<warps>(sum_normal) / count;
    for_each_group<warps, n>(a.width, [&](std::int64_t i, std::int64_t left) {
      read(i, left);
      Floats<n> result;
      for (int k = 0; k < n; ++k) result[k] = (scaled[k] - mean_gradient - normal[k] * mean_normal) * r;
      if (a.add_to_dx) {
        const Floats<n> before = load_some<n>(dx + i, left, a.aligned);
        for (int k = 0; k < n; ++k) result[k] += before[k];
      }
      store_some<n>(dx + i, result, left, a.aligned);
    });
  }
}

// Sums over the rows for the gradients of scale and, of a layer norm, shift (column_sums.cuh).
template <class T, bool centred>
struct NormGradients {
  static constexpr int sums = centred ? 2 : 1, vector_numel = vector_numel_of<T>;
  const T* dy;
  const T* x;
  const float* mean;
  const float* rstd;
  std::int64_t width;
  bool aligned;

  template <int n>
  __device__ void add(std::int64_t row, std::int64_t column, std::int64_t count,
                      Floats<n> (&sum)[sums]) const {
    const float m = centred ? mean[row] : 0.0f, r = rstd[row];
    const Floats<n> gradient = load_some<n>(dy + row * width + column, count, aligned);
    const Floats<n> value = load_some<n>(x + row * width + column, count, aligned);
    for (int k = 0; k < n; ++k) {
      sum[0][k] += gradient[k] * ((value[k] - m) * r);
      if constexpr (centred) sum[1][k] += gradient[k];
    }
  }
  template <class Visit>
  void pointers(Visit visit) {
    visit(dy), visit(x), visit(mean), visit(rstd);
  }
};

// ---- Launches

// Calls body with the warps of a team, as a constant, and the blocks of a grid: no more than run at once.
template <class Body>
void with_team(std::int64_t rows, std::int64_t width, Body&& body) {
  constexpr std::int64_t most_blocks = 1024;
  const auto with = [&](auto warps) {
    constexpr int teams = Team<warps.value>::in_block;
    body(warps, static_cast<unsigned>(std::min(most_blocks, (rows + teams - 1) / teams)));
  };
  if (width <= widest_of_a_warp)
    with(std::integral_constant<int, 1>{});
  else
    with(std::integral_constant<int, block_warps>{});
}

template <bool centred, class T>
void launch_norm(KernelQueue& queue, const char* name, NormRows<T> rows) {
  constexpr int n = vector_numel_of<T>;
  rows.aligned =
      rows.width % n == 0 && aligned_for<n>(rows.x, rows.delta, rows.sum, rows.scale, rows.shift, rows.y);
  with_team(rows.rows, rows.width, [&](auto warps, unsigned blocks) {
    launch(queue, name, {.grid = blocks, .block = block_threads}, norm_rows<T, warps.value, centred>, rows);
  });
}

// The sums over rows come first: dx may be dy.
template <bool centred, class T>
void launch_norm_backward(KernelQueue& queue, const char* name, NormBackwardRows<T> rows, float* scratch,
                          const ColumnTotals<T, centred ? 2 : 1>& totals) {
  constexpr int n = vector_numel_of<T>;
  rows.aligned = rows.width % n == 0 && aligned_for<n>(rows.dy, rows.x, rows.scale, rows.dx);
  const NormGradients<T, centred> gradients{.dy = rows.dy,
                                            .x = rows.x,
                                            .mean = rows.mean,
                                            .rstd = rows.rstd,
                                            .width = rows.width,
                                            .aligned = rows.aligned};
  sum_columns(queue, name, gradients, rows.rows, rows.width, scratch, totals);
  with_team(rows.rows, rows.width, [&](auto warps, unsigned blocks) {
    launch(queue, name, {.grid = blocks, .block = block_threads}, norm_backward_rows<T, warps.value, centred>,
           rows);
  });
}

template <bool centred>
void norm(KernelQueue& queue, const char* name, const NormArguments& a) {
  with_element(a.x.dtype, [&](auto element) {
    using T = decltype(element);
    const NormRows<T> rows{.x = elements<T>(a.x.data),
                           .delta = elements<T>(a.delta),
                           .sum = elements<T>(a.sum),
                           .scale = elements<T>(a.scale),
                           .shift = elements<T>(a.shift),
                           .y = elements<T>(a.y),
                           .mean = a.mean,
                           .rstd = a.rstd,
                           .rows = a.x.rows,
                           .width = a.x.columns,
                           .epsilon = a.epsilon,
                           .aligned = false};
    launch_norm<centred>(queue, name, rows);
  });
}

template <class T>
NormBackwardRows<T> backward_rows(const NormBackwardArguments& a) {
  return {.dy = elements<T>(a.dy.data),
          .x = elements<T>(a.x),
          .scale = elements<T>(a.scale),
          .mean = a.mean,
          .rstd = a.rstd,
          .dx = elements<T>(a.dx),
          .add_to_dx = a.add_to_dx,
          .rows = a.dy.rows,
          .width = a.dy.columns,
          .aligned = false};
}

}  // namespace

void layer_norm(KernelQueue& queue, const NormArguments& a) {
  norm<true>(queue, "layer norm", a);
}
void rms_norm(KernelQueue& queue, const NormArguments& a) {
  norm<false>(queue, "rms norm", a);
}

Bytes layer_norm_backward_scratch_bytes(std::int64_t rows, std::int64_t width) {
  return partials_bytes(rows, width, 2);
}

void layer_norm_backward(KernelQueue& queue, const NormBackwardArguments& a, float* scratch) {
  with_element(a.dy.dtype, [&](auto element) {
    using T = decltype(element);
    launch_norm_backward<true>(queue, "layer norm backward", backward_rows<T>(a), scratch,
                               ColumnTotals<T, 2>{{elements<T>(a.dscale), elements<T>(a.dshift)}});
  });
}

Bytes rms_norm_backward_scratch_bytes(std::int64_t rows, std::int64_t width) {
  return partials_bytes(rows, width, 1);
}

void rms_norm_backward(KernelQueue& queue, const NormBackwardArguments& a, float* scratch) {
  with_element(a.dy.dtype, [&](auto element) {
    using T = decltype(element);
    launch_norm_backward<false>(queue, "rms norm backward", backward_rows<T>(a), scratch,
                                ColumnTotals<T, 1>{{elements<T>(a.dscale)}});
  });
}

}  // namespace headrace

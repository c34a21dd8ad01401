#include "gpu/attention_kernels.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "gpu/attention_tiles.cuh"
#include "gpu/element.cuh"

namespace headrace {
namespace {

// Rows of the tile that a block owns and of the tiles that pass it, by padded head depth: what two blocks of
// a multiprocessor have room for in shared memory and registers, where that is possible.
template <int Depth>
struct ForwardTiles {
  static constexpr int own = Depth <= 128 ? 64 : 32, passing = Depth <= 64 ? 64 : 32;
  static constexpr std::size_t shared_bytes =
      sizeof(float) * (tile_numel(own, Depth) + 2 * tile_numel(passing, Depth) + tile_numel(own, passing));
};
template <int Depth>
struct BackwardTiles {
  static constexpr int own = Depth <= 64 ? 64 : 32, passing = 32;
  static constexpr std::size_t shared_bytes =
      sizeof(float) *
      (2 * tile_numel(own, Depth) + 2 * tile_numel(passing, Depth) + tile_numel(own, passing));
};

// A query head of a sample is a task; block b takes tile b / tasks of task b % tasks. Keys and values are of the
// head that the task shares with its group: columns of qkv, or rows of a cache that also holds `past` earlier
// positions.
struct Heads {
  std::int64_t sequence, heads, key_heads, width, tasks;
  std::int64_t past, key_capacity, key_stride, key_column;  // rows of a sample that hold keys, and where in one
  int depth;
  float scale;
  bool aligned;  // every row of a head, to quads

  // Query heads of a head of keys.
  __device__ std::int64_t group() const { return heads / key_heads; }
  // Rows from row `first` on, of qkv or of output.
  template <class T>
  __device__ HeadRows<T> query_rows(T* qkv, std::int64_t task, std::int64_t first) const {
    const std::int64_t row = task / heads * sequence + first, stride = (heads + 2 * key_heads) * depth;
    return {qkv + row * stride + task % heads * depth, stride, at_most_a_tile(sequence - first), depth, aligned};
  }
  template <class T>
  __device__ HeadRows<T> key_rows(T* keys, std::int64_t task, std::int64_t first) const {
    return rows_of_key_head(keys, task, task % heads / group(), first);
  }
  template <class T>
  __device__ HeadRows<T> value_rows(T* keys, std::int64_t task, std::int64_t first) const {
    return rows_of_key_head(keys, task, key_heads + task % heads / group(), first);
  }
  template <class T>
  __device__ HeadRows<T> output_rows(T* output, std::int64_t task, std::int64_t first) const {
    const std::int64_t sample = task / heads, head = task % heads, row = sample * sequence + first;
    return {output + row * width + head * depth, width, at_most_a_tile(sequence - first), depth, aligned};
  }
  template <class T>
  __device__ HeadRows<T> rows_of_key_head(T* keys, std::int64_t task, std::int64_t head, std::int64_t first) const {
    const std::int64_t row = task / heads * key_capacity + first;
    return {keys + row * key_stride + key_column + head * depth, key_stride,
            at_most_a_tile(past + sequence - first), depth, aligned};
  }
  __device__ static int at_most_a_tile(std::int64_t rows) {
    constexpr std::int64_t more_than_a_tile = 1 << 16;
    return static_cast<int>(rows < more_than_a_tile ? rows : more_than_a_tile);
  }
};

// Of the 16 threads of a row.
__device__ __forceinline__ float largest_of_row(float x) {
  for (int lanes = column_threads / 2; lanes > 0; lanes /= 2)
    x = fmaxf(x, __shfl_xor_sync(~0u, x, lanes, column_threads));
  return x;
}
__device__ __forceinline__ float sum_of_row(float x) {
  for (int lanes = column_threads / 2; lanes > 0; lanes /= 2)
    x += __shfl_xor_sync(~0u, x, lanes, column_threads);
  return x;
}

// ---- forward

// A row's softmax so far: weights are exp((score - largest) * scale). `sum` is of this thread's columns.
template <int RowsEach>
struct RunningSoftmax {
  float largest[RowsEach], sum[RowsEach];
};

// Scores of one tile become weights in `weights`; what was summed before is brought to the new largest score.
template <int Passing, int RowsEach, int ColumnsEach, int DepthEach>
__device__ __forceinline__ void update_softmax(const float (&scores)[RowsEach][ColumnsEach], float scale,
                                               const ThreadPlace& at, RunningSoftmax<RowsEach>& softmax,
                                               float (&output)[RowsEach][DepthEach], float* weights) {
#pragma unroll
  for (int i = 0; i < RowsEach; ++i) {
    float largest = softmax.largest[i];
#pragma unroll
    for (int j = 0; j < ColumnsEach; ++j) largest = fmaxf(largest, scores[i][j]);
    largest = largest_of_row(largest);
    const float kept = expf((softmax.largest[i] - largest) * scale);
    softmax.largest[i] = largest;
    float sum = softmax.sum[i] * kept;
#pragma unroll
    for (int d = 0; d < DepthEach; ++d) output[i][d] *= kept;
    float* const row = weights + (at.row + i * tile_row_threads) * tile_stride(Passing) + at.column;
#pragma unroll
    for (int j = 0; j < ColumnsEach; ++j) {
      const float weight = expf((scores[i][j] - largest) * scale);
      sum += weight;
      row[j * column_threads] = weight;
    }
    softmax.sum[i] = sum;
  }
}

template <class T, int Depth>
__global__ void __launch_bounds__(tile_threads)
    attention_forward(Heads heads, const T* qkv, const T* keys, T* output, float* log_sums) {
  using Tiles = ForwardTiles<Depth>;
  constexpr int rows_each = Tiles::own / tile_row_threads, columns_each = Tiles::passing / column_threads;
  const ThreadPlace at = thread_place();
  float* const query = dynamic_shared<float>();
  float* const key = query + tile_numel(Tiles::own, Depth);
  float* const value = key + tile_numel(Tiles::passing, Depth);
  float* const weights = value + tile_numel(Tiles::passing, Depth);
  // Later queries have more keys: they start first.
  const std::int64_t task = blockIdx.x % heads.tasks, tiles = gridDim.x / heads.tasks;
  const std::int64_t first_query = (tiles - 1 - blockIdx.x / heads.tasks) * Tiles::own;
  load_tile<Tiles::own, Depth>(heads.query_rows(qkv, task, first_query), at, query);

  float sum[rows_each][ThreadColumns<Depth>::each] = {};
  RunningSoftmax<rows_each> softmax;
#pragma unroll
  for (int i = 0; i < rows_each; ++i) softmax.largest[i] = -INFINITY, softmax.sum[i] = 0.0f;
  const std::int64_t end = heads.past + std::min(heads.sequence, first_query + Tiles::own);
  for (std::int64_t first_key = 0; first_key < end; first_key += Tiles::passing) {
    __syncthreads();
    load_tile<Tiles::passing, Depth>(heads.key_rows(keys, task, first_key), at, key);
    load_tile<Tiles::passing, Depth>(heads.value_rows(keys, task, first_key), at, value);
    __syncthreads();
    float scores[rows_each][columns_each];
    multiply_rows<Depth>(query, key, at, scores);
    const int diagonal = static_cast<int>(heads.past + first_query - first_key);  // of row 0
    if (diagonal < Tiles::passing - 1)
#pragma unroll
      for (int i = 0; i < rows_each; ++i)
#pragma unroll
        for (int j = 0; j < columns_each; ++j)
          if (at.column + j * column_threads > diagonal + at.row + i * tile_row_threads) scores[i][j] = -INFINITY;
    update_softmax<Tiles::passing>(scores, heads.scale, at, softmax, sum, weights);
    __syncwarp();
    add_product<Tiles::passing, Depth>(weights, value, at, sum);
  }

  const HeadRows<T> to = heads.output_rows(output, task, first_query);
#pragma unroll
  for (int i = 0; i < rows_each; ++i) {
    const int row = at.row + i * tile_row_threads;
    const float total = sum_of_row(softmax.sum[i]);
    store_row<Depth>(sum[i], 1.0f / total, at, row, to);
    if (log_sums != nullptr && at.column == 0 && row < to.rows)
      log_sums[task * heads.sequence + first_query + row] = softmax.largest[i] * heads.scale + logf(total);
  }
}

// ---- backward

// dots = each row of doutput times the same row of output, by head: what softmax takes off every gradient of
// a weight.
template <class T>
__global__ void attention_dots(Heads heads, const T* output, const T* doutput, float* dots) {
  const std::int64_t count = heads.tasks * heads.sequence;
  for (std::int64_t item = first_item(); item < count; item += item_step()) {
    // Neighbouring threads take neighbouring heads of one row.
    const std::int64_t head = item % heads.heads, row = item / heads.heads;
    const std::int64_t task = row / heads.sequence * heads.heads + head, query = row % heads.sequence;
    const HeadRows<const T> left = heads.output_rows(output, task, query);
    const HeadRows<const T> right = heads.output_rows(doutput, task, query);
    float dot = 0.0f;
    for (int d = 0; d < heads.depth; d += 4) {
      const Floats<4> a = load_some<4>(left.data + d, heads.depth - d, heads.aligned);
      const Floats<4> b = load_some<4>(right.data + d, heads.depth - d, heads.aligned);
      for (int k = 0; k < 4; ++k) dot = fmaf(a[k], b[k], dot);
    }
    dots[task * heads.sequence + query] = dot;
  }
}

template <class T>
struct BackwardPointers {
  const T *qkv, *doutput;
  const float *log_sums, *dots;
  T* dqkv;
  template <class Visit>
  void pointers(Visit visit) {
    visit(qkv), visit(doutput), visit(log_sums), visit(dots), visit(dqkv);
  }
};

// Shared memory of both gradient kernels: two tiles of the block's own, two that pass, one of weights.
template <int Depth>
struct BackwardShared {
  using Tiles = BackwardTiles<Depth>;
  float* own[2];
  float* passing[2];
  float* weights;

  __device__ BackwardShared() {
    float* next = dynamic_shared<float>();
    for (float*& tile : own) tile = next, next += tile_numel(Tiles::own, Depth);
    for (float*& tile : passing) tile = next, next += tile_numel(Tiles::passing, Depth);
    weights = next;
  }
};

template <int Passing, int RowsEach, int ColumnsEach>
__device__ __forceinline__ void store_weights(const float (&x)[RowsEach][ColumnsEach], const ThreadPlace& at,
                                              float* weights) {
#pragma unroll
  for (int i = 0; i < RowsEach; ++i)
#pragma unroll
    for (int j = 0; j < ColumnsEach; ++j)
      weights[(at.row + i * tile_row_threads) * tile_stride(Passing) + at.column + j * column_threads] = x[i][j];
}

// A block owns keys and values; the queries of each head that shares them, from the diagonal on, pass it.
template <class T, int Depth>
__global__ void __launch_bounds__(tile_threads)
    attention_backward_keys(Heads heads, BackwardPointers<T> pointers) {
  using Tiles = BackwardTiles<Depth>;
  constexpr int rows_each = Tiles::own / tile_row_threads, columns_each = Tiles::passing / column_threads;
  const ThreadPlace at = thread_place();
  const BackwardShared<Depth> shared;
  float *const key = shared.own[0], *const value = shared.own[1];
  float *const query = shared.passing[0], *const doutput = shared.passing[1];
  const std::int64_t group = heads.group(), key_tasks = heads.tasks / group;
  const std::int64_t first_task = blockIdx.x % key_tasks * group;      // of those that share the keys
  const std::int64_t first_key = blockIdx.x / key_tasks * Tiles::own;  // earlier keys have more queries
  load_tile<Tiles::own, Depth>(heads.key_rows(pointers.qkv, first_task, first_key), at, key);
  load_tile<Tiles::own, Depth>(heads.value_rows(pointers.qkv, first_task, first_key), at, value);

  float dkey[rows_each][ThreadColumns<Depth>::each] = {}, dvalue[rows_each][ThreadColumns<Depth>::each] = {};
  for (std::int64_t task = first_task; task < first_task + group; ++task)
    for (std::int64_t first = first_key; first < heads.sequence; first += Tiles::passing) {
      __syncthreads();
      load_tile<Tiles::passing, Depth>(heads.query_rows(pointers.qkv, task, first), at, query);
      load_tile<Tiles::passing, Depth>(heads.output_rows(pointers.doutput, task, first), at, doutput);
      __syncthreads();
      float weights[rows_each][columns_each], gradients[rows_each][columns_each];
      multiply_rows<Depth>(key, query, at, weights);
      multiply_rows<Depth>(value, doutput, at, gradients);
#pragma unroll
      for (int j = 0; j < columns_each; ++j) {
        const std::int64_t q = first + at.column + j * column_threads;
        const bool exists = q < heads.sequence;
        const float log_sum = exists ? pointers.log_sums[task * heads.sequence + q] : 0.0f;
        const float dot = exists ? pointers.dots[task * heads.sequence + q] : 0.0f;
#pragma unroll
        for (int i = 0; i < rows_each; ++i) {
          const bool seen = exists && first_key + at.row + i * tile_row_threads <= q;
          weights[i][j] = seen ? expf(weights[i][j] * heads.scale - log_sum) : 0.0f;
          gradients[i][j] = seen ? weights[i][j] * (gradients[i][j] - dot) * heads.scale : 0.0f;
        }
      }
      store_weights<Tiles::passing>(weights, at, shared.weights);
      __syncwarp();
      add_product<Tiles::passing, Depth>(shared.weights, doutput, at, dvalue);
      __syncwarp();
      store_weights<Tiles::passing>(gradients, at, shared.weights);
      __syncwarp();
      add_product<Tiles::passing, Depth>(shared.weights, query, at, dkey);
    }
#pragma unroll
  for (int i = 0; i < rows_each; ++i) {
    const int row = at.row + i * tile_row_threads;
    store_row<Depth>(dkey[i], 1.0f, at, row, heads.key_rows(pointers.dqkv, first_task, first_key));
    store_row<Depth>(dvalue[i], 1.0f, at, row, heads.value_rows(pointers.dqkv, first_task, first_key));
  }
}

// A block owns queries; keys and values, up to the diagonal, pass it.
template <class T, int Depth>
__global__ void __launch_bounds__(tile_threads)
    attention_backward_queries(Heads heads, BackwardPointers<T> pointers) {
  using Tiles = BackwardTiles<Depth>;
  constexpr int rows_each = Tiles::own / tile_row_threads, columns_each = Tiles::passing / column_threads;
  const ThreadPlace at = thread_place();
  const BackwardShared<Depth> shared;
  float *const query = shared.own[0], *const doutput = shared.own[1];
  float *const key = shared.passing[0], *const value = shared.passing[1];
  const std::int64_t task = blockIdx.x % heads.tasks, tiles = gridDim.x / heads.tasks;
  const std::int64_t first_query = (tiles - 1 - blockIdx.x / heads.tasks) * Tiles::own;
  load_tile<Tiles::own, Depth>(heads.query_rows(pointers.qkv, task, first_query), at, query);
  load_tile<Tiles::own, Depth>(heads.output_rows(pointers.doutput, task, first_query), at, doutput);

  float log_sum[rows_each], dot[rows_each];
#pragma unroll
  for (int i = 0; i < rows_each; ++i) {
    const std::int64_t q = first_query + at.row + i * tile_row_threads;
    const bool exists = q < heads.sequence;
    log_sum[i] = exists ? pointers.log_sums[task * heads.sequence + q] : 0.0f;
    dot[i] = exists ? pointers.dots[task * heads.sequence + q] : 0.0f;
  }
  float dquery[rows_each][ThreadColumns<Depth>::each] = {};
  const std::int64_t end = std::min(heads.sequence, first_query + Tiles::own);
  for (std::int64_t first = 0; first < end; first += Tiles::passing) {
    __syncthreads();
    load_tile<Tiles::passing, Depth>(heads.key_rows(pointers.qkv, task, first), at, key);
    load_tile<Tiles::passing, Depth>(heads.value_rows(pointers.qkv, task, first), at, value);
    __syncthreads();
    float weights[rows_each][columns_each], gradients[rows_each][columns_each];
    multiply_rows<Depth>(query, key, at, weights);
    multiply_rows<Depth>(doutput, value, at, gradients);
#pragma unroll
    for (int i = 0; i < rows_each; ++i) {
      const std::int64_t q = first_query + at.row + i * tile_row_threads;
#pragma unroll
      for (int j = 0; j < columns_each; ++j) {
        const bool seen = first + at.column + j * column_threads <= q && q < heads.sequence;
        const float weight = seen ? expf(weights[i][j] * heads.scale - log_sum[i]) : 0.0f;
        gradients[i][j] = seen ? weight * (gradients[i][j] - dot[i]) * heads.scale : 0.0f;
      }
    }
    store_weights<Tiles::passing>(gradients, at, shared.weights);
    __syncwarp();
    add_product<Tiles::passing, Depth>(shared.weights, key, at, dquery);
  }
#pragma unroll
  for (int i = 0; i < rows_each; ++i)
    store_row<Depth>(dquery[i], 1.0f, at, at.row + i * tile_row_threads,
                     heads.query_rows(pointers.dqkv, task, first_query));
}

// ---- launches

template <class... Pointers>
Heads heads_of(const AttentionShape& shape, const Pointers*... pointers) {
  const std::int64_t depth = shape.depth();
  return {.sequence = shape.sequence,
          .heads = shape.heads,
          .key_heads = shape.key_heads,
          .width = shape.width,
          .tasks = shape.batch * shape.heads,
          .past = 0,
          .key_capacity = shape.sequence,
          .key_stride = shape.qkv_width(),
          .key_column = shape.heads * depth,
          .depth = static_cast<int>(depth),
          .scale = 1.0f / std::sqrt(static_cast<float>(depth)),
          .aligned = depth % 4 == 0 && aligned_for<4>(pointers...)};
}

// Calls body(std::integral_constant<int, padded depth>).
template <class Body>
void with_padded_depth(int depth, Body&& body) {
  if (depth <= 32) return body(std::integral_constant<int, 32>{});
  if (depth <= 64) return body(std::integral_constant<int, 64>{});
  if (depth <= 128) return body(std::integral_constant<int, 128>{});
  body(std::integral_constant<int, 256>{});
}

// A block for each tile of a task.
LaunchShape tiles_shape(const Heads& heads, std::int64_t tasks, int own, std::size_t shared_bytes) {
  const std::int64_t tiles = (heads.sequence + own - 1) / own;
  return {dim3(static_cast<unsigned>(tiles * tasks)), dim3(tile_threads), shared_bytes};
}

template <class T>
void forward_of(KernelQueue& queue, const Heads& heads, const T* qkv, const T* keys, T* output, float* log_sums) {
  with_padded_depth(heads.depth, [&](auto padded) {
    constexpr int depth = decltype(padded)::value;
    using Tiles = ForwardTiles<depth>;
    launch(queue, "attention", tiles_shape(heads, heads.tasks, Tiles::own, Tiles::shared_bytes),
           attention_forward<T, depth>, heads, qkv, keys, output, log_sums);
  });
}

template <class T>
void backward_of(KernelQueue& queue, const AttentionBackwardArguments& a) {
  const auto* const output = reinterpret_cast<const T*>(a.output);
  const BackwardPointers<T> pointers{.qkv = reinterpret_cast<const T*>(a.qkv),
                                     .doutput = reinterpret_cast<const T*>(a.doutput),
                                     .log_sums = a.log_sums,
                                     .dots = a.scratch,
                                     .dqkv = reinterpret_cast<T*>(a.dqkv)};
  const Heads heads = heads_of(a.shape, pointers.qkv, pointers.doutput, pointers.dqkv, output);
  constexpr unsigned threads = 128;
  launch(queue, "attention backward: dots", {grid_blocks(heads.tasks * heads.sequence, threads), threads},
         attention_dots<T>, heads, output, pointers.doutput, a.scratch);
  with_padded_depth(heads.depth, [&](auto padded) {
    constexpr int depth = decltype(padded)::value;
    using Tiles = BackwardTiles<depth>;
    const auto shape_for = [&](std::int64_t tasks) {
      return tiles_shape(heads, tasks, Tiles::own, Tiles::shared_bytes);
    };
    launch(queue, "attention backward: keys", shape_for(a.shape.batch * a.shape.key_heads),
           attention_backward_keys<T, depth>, heads, pointers);
    launch(queue, "attention backward: queries", shape_for(heads.tasks), attention_backward_queries<T, depth>,
           heads, pointers);
  });
}

}  // namespace

void attention(KernelQueue& queue, const AttentionShape& shape, const std::byte* qkv, std::byte* output,
               float* log_sums) {
  with_element(shape.dtype, [&](auto element) {
    using T = decltype(element);
    const auto* const rows = reinterpret_cast<const T*>(qkv);
    auto* const to = reinterpret_cast<T*>(output);
    forward_of(queue, heads_of(shape, rows, to), rows, rows, to, log_sums);
  });
}

void cached_attention(KernelQueue& queue, const AttentionShape& shape, const std::byte* qkv,
                      const KeyValueCache& cache, std::byte* output) {
  with_element(shape.dtype, [&](auto element) {
    using T = decltype(element);
    const auto *const rows = reinterpret_cast<const T*>(qkv), *const keys = reinterpret_cast<const T*>(cache.rows);
    auto* const to = reinterpret_cast<T*>(output);
    Heads heads = heads_of(shape, rows, keys, to);
    heads.past = cache.used, heads.key_capacity = cache.capacity;
    heads.key_stride = shape.cached_width(), heads.key_column = 0;
    forward_of(queue, heads, rows, keys, to, static_cast<float*>(nullptr));
  });
}

Bytes attention_backward_scratch_bytes(const AttentionShape& shape) {
  return static_cast<Bytes>(shape.batch * shape.heads * shape.sequence) * sizeof(float);
}

void attention_backward(KernelQueue& queue, const AttentionBackwardArguments& arguments) {
  with_element(arguments.shape.dtype,
               [&](auto element) { backward_of<decltype(element)>(queue, arguments); });
}

}  // namespace headrace

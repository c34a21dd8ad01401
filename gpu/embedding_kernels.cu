#include "gpu/embedding_kernels.h"

#include "gpu/element.cuh"
#include "gpu/token_batch.cuh"
#include "gpu/token_kernels.h"

namespace headrace {
namespace {

constexpr unsigned threads = 256;
constexpr int group = 4;  // neighbouring columns of one thread

// Rows of `columns` elements, each row in `groups` groups; item i is a group of row i / groups.
struct Groups {
  std::int64_t columns, groups, items;
  bool aligned;
};
Groups groups_of(std::int64_t rows, std::int64_t columns, bool aligned) {
  const std::int64_t groups = (columns + group - 1) / group;
  return {columns, groups, rows * groups, aligned};
}
LaunchShape shape_of(const Groups& groups) {
  return {.grid = grid_blocks(groups.items, threads), .block = threads};
}
template <class... T>
bool groups_aligned(const Matrix& table, const T*... arrays) {
  return table.columns % group == 0 && table.stride % group == 0 && aligned_for<group>(arrays...);
}

// ---- forward

template <class T>
struct EmbeddingPass {
  TokenBatch tokens;
  Groups groups;
  const T* token_table;
  std::int64_t token_stride;
  const T* position_table;  // or null
  std::int64_t position_stride;
  T* x;

  template <class Visit>
  void pointers(Visit visit) {
    visit(tokens.ids), visit(token_table), visit(position_table), visit(x);
  }
};

template <class T>
__global__ void __launch_bounds__(threads) embedding_rows(const EmbeddingPass<T> pass) {
  const Groups& groups = pass.groups;
  for (std::int64_t item = first_item(); item < groups.items; item += item_step()) {
    const std::int64_t row = item / groups.groups, column = item % groups.groups * group;
    const std::int64_t id = token_of(pass.tokens, row, 0), count = groups.columns - column;
    if (id == no_token) continue;
    Floats<group> sum =
        load_some<group>(pass.token_table + id * pass.token_stride + column, count, groups.aligned);
    if (pass.position_table != nullptr) {
      const std::int64_t position = row % pass.tokens.sequence;
      const Floats<group> other = load_some<group>(
          pass.position_table + position * pass.position_stride + column, count, groups.aligned);
      for (int k = 0; k < group; ++k) sum[k] += other[k];
    }
    store_some(pass.x + row * groups.columns + column, sum, count, groups.aligned);
  }
}

template <class T>
void forward_of(KernelQueue& queue, const EmbeddingArguments& a) {
  EmbeddingPass<T> pass{.tokens = a.tokens,
                        .groups = {},
                        .token_table = reinterpret_cast<const T*>(a.token_table.data),
                        .token_stride = a.token_table.stride,
                        .position_table = reinterpret_cast<const T*>(a.position_table.data),
                        .position_stride = a.position_table.stride,
                        .x = reinterpret_cast<T*>(a.x)};
  const bool aligned = groups_aligned(a.token_table, pass.token_table, pass.position_table, pass.x) &&
                       pass.position_stride % group == 0;
  pass.groups = groups_of(a.tokens.batch * a.tokens.sequence, a.token_table.columns, aligned);
  launch(queue, "embedding", shape_of(pass.groups), embedding_rows<T>, pass);
}

// ---- backward: each row of a table's gradient is a sum of rows of dx

// Rows of dx that read token v.
struct RowsOfToken {
  RowsByToken sorted;
  __device__ std::int64_t begin(std::int64_t v) const { return sorted.first[v]; }
  __device__ std::int64_t end(std::int64_t v) const { return sorted.first[v + 1]; }
  __device__ std::int64_t row(std::int64_t, std::int64_t k) const {
    return static_cast<std::uint32_t>(sorted.keys[k]);
  }
  template <class Visit>
  void pointers(Visit visit) {
    visit(sorted.keys), visit(sorted.first);
  }
};

// Rows of dx at position p, one a sample.
struct RowsOfPosition {
  std::int64_t batch, sequence;
  __device__ std::int64_t begin(std::int64_t) const { return 0; }
  __device__ std::int64_t end(std::int64_t p) const { return p < sequence ? batch : 0; }
  __device__ std::int64_t row(std::int64_t p, std::int64_t sample) const { return sample * sequence + p; }
  template <class Visit>
  void pointers(Visit) {}
};

template <class T, class Rows>
struct RowSumsPass {
  Rows rows;
  Groups groups;
  const float* start;  // or null
  const T* dx;
  T* table;
  std::int64_t stride;

  template <class Visit>
  void pointers(Visit visit) {
    rows.pointers(visit);
    visit(start), visit(dx), visit(table);
  }
};

template <class T, class Rows>
__global__ void __launch_bounds__(threads) sum_rows_of_table(const RowSumsPass<T, Rows> pass) {
  const Groups& groups = pass.groups;
  for (std::int64_t item = first_item(); item < groups.items; item += item_step()) {
    const std::int64_t to = item / groups.groups, column = item % groups.groups * group;
    const std::int64_t count = groups.columns - column;
    Floats<group> sum = pass.start == nullptr ? all<group>(0.0f)
                                              : load_some<group>(pass.start + to * groups.columns + column,
                                                                 count, groups.aligned);
    const std::int64_t end = pass.rows.end(to);
#pragma unroll 4
    for (std::int64_t k = pass.rows.begin(to); k < end; ++k) {
      const T* const from = pass.dx + pass.rows.row(to, k) * groups.columns + column;
      const Floats<group> term = load_some<group>(from, count, groups.aligned);
      for (int i = 0; i < group; ++i) sum[i] += term[i];
    }
    store_some(pass.table + to * pass.stride + column, sum, count, groups.aligned);
  }
}

template <class T, class Rows>
void sum_rows_to(KernelQueue& queue, const char* name, const Rows& rows, const float* start, const T* dx,
                 const Matrix& table) {
  T* const data = reinterpret_cast<T*>(table.data);
  const Groups groups = groups_of(table.rows, table.columns, groups_aligned(table, start, dx, data));
  launch(queue, name, shape_of(groups), sum_rows_of_table<T, Rows>,
         RowSumsPass<T, Rows>{rows, groups, start, dx, data, table.stride});
}

}  // namespace

void embedding(KernelQueue& queue, const EmbeddingArguments& arguments) {
  with_element(arguments.token_table.dtype,
               [&](auto element) { forward_of<decltype(element)>(queue, arguments); });
}

Bytes embedding_backward_scratch_bytes(const TokenBatch& tokens) {
  return rows_by_token_scratch_bytes(tokens);
}

void embedding_backward(KernelQueue& queue, const EmbeddingBackwardArguments& a) {
  const RowsOfToken of_token{sort_rows_by_token(queue, a.tokens, a.scratch)};
  const RowsOfPosition of_position{a.tokens.batch, a.tokens.sequence};
  with_element(a.dtoken.dtype, [&](auto element) {
    const auto* const dx = reinterpret_cast<const decltype(element)*>(a.dx);
    sum_rows_to(queue, "token embedding backward", of_token, a.tied_gradient, dx, a.dtoken);
    if (a.dposition.rows == 0) return;
    sum_rows_to(queue, "position embedding backward", of_position, nullptr, dx, a.dposition);
  });
}

}  // namespace headrace

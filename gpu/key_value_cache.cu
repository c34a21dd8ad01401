#include "gpu/key_value_cache.h"

#include "gpu/element.cuh"

namespace headrace {
namespace {

// Of the rows of qkv, the last `width` elements; a row of the cache is these.
struct AppendedRows {
  std::int64_t rows, sequence, stride, before, width;
  std::int64_t capacity, used;
};

template <class T>
__global__ void append_rows(AppendedRows a, const T* qkv, T* cache) {
  const std::int64_t items = a.rows * a.width;
  for (std::int64_t item = first_item(); item < items; item += item_step()) {
    const std::int64_t row = item / a.width, column = item % a.width;
    const std::int64_t to = row / a.sequence * a.capacity + a.used + row % a.sequence;
    cache[to * a.width + column] = qkv[row * a.stride + a.before + column];
  }
}

}  // namespace

void append_to_cache(KernelQueue& queue, const AttentionShape& shape, const std::byte* qkv,
                     const KeyValueCache& cache) {
  const AppendedRows rows{.rows = shape.batch * shape.sequence,
                          .sequence = shape.sequence,
                          .stride = shape.qkv_width(),
                          .before = shape.heads * shape.depth(),
                          .width = shape.cached_width(),
                          .capacity = cache.capacity,
                          .used = cache.used};
  constexpr unsigned threads = 256;
  with_element(shape.dtype, [&](auto element) {
    using T = decltype(element);
    launch(queue, "key-value cache", {.grid = grid_blocks(rows.rows * rows.width, threads), .block = threads},
           append_rows<T>, rows, reinterpret_cast<const T*>(qkv), reinterpret_cast<T*>(cache.rows));
  });
}

}  // namespace headrace

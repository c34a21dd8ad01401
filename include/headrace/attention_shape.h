// The shape of an attention over the rows of a micro-batch, and the keys and values that are kept for rows to
// come.
#pragma once

#include <cstddef>
#include <cstdint>

#include "headrace/dtype.h"

namespace headrace {

// qkv: (batch * sequence) x qkv_width(), contiguous: the heads of queries, of keys, of values, side by side.
struct AttentionShape {
  std::int64_t batch = 0, sequence = 0, heads = 0, width = 0;  // width: of all query heads together
  DType dtype = DType::f32;
  std::int64_t key_heads = heads;  // of keys and of values, each shared by group() neighbouring query heads

  std::int64_t depth() const { return width / heads; }
  std::int64_t group() const { return heads / key_heads; }
  std::int64_t qkv_width() const { return (heads + 2 * key_heads) * depth(); }
  std::int64_t cached_width() const { return 2 * key_heads * depth(); }
};

// `capacity` rows for each sample: a row is the heads of keys and of values at one position. The first `used`
// hold those of earlier positions; what follows is read too, so it must hold finite numbers from the start.
struct KeyValueCache {
  std::byte* rows = nullptr;  // (batch * capacity) x cached_width(), contiguous
  std::int64_t capacity = 0;  // a multiple of cache_rows_multiple
  std::int64_t used = 0;
};
// Products with a cache are of so many rows, or a multiple: one shape serves many positions.
inline constexpr std::int64_t cache_rows_multiple = 64;

}  // namespace headrace

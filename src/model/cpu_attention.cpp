// Causal attention on the CPU. One thread takes one head of one sample and walks its queries in tiles, so
// that keys above the diagonal are skipped and the scores of a tile stay in its cache. Backward, it takes one
// head of keys and walks the query heads that share it in order: no sum crosses threads.
//
// With a cache, keys and values are rows of it, and a tile takes some of them more than its queries see,
// whose weights are 0.
#include <algorithm>
#include <cmath>
#include <vector>

#include "headrace/errors.h"
#include "src/model/cpu_ops.h"
#include "src/model/cpu_pieces.h"

namespace headrace {
namespace {

constexpr std::int64_t query_tile_rows = 128;

// Rows of keys and values: a sample's, and the elements of a row before the heads of keys.
struct KeyRows {
  std::int64_t of_sample, stride, before;
};
KeyRows rows_of_qkv(const AttentionShape& shape) {
  return {shape.sequence, shape.qkv_width(), shape.heads * shape.depth()};
}
KeyRows rows_of_cache(const AttentionShape& shape, const KeyValueCache& cache) {
  return {cache.capacity, shape.cached_width(), 0};
}

// Where one query head of one sample, a task, lies within qkv, output and log_sums, and the head of keys and
// values that it shares.
struct HeadView {
  AttentionShape shape;
  KeyRows key_rows = rows_of_qkv(shape);
  std::int64_t past = 0;          // positions before the first query
  std::int64_t key_multiple = 1;  // of the keys of a tile
  std::int64_t depth = shape.depth();
  std::int64_t qkv_stride = shape.qkv_width();
  float scale = 1.0f / std::sqrt(static_cast<float>(depth));

  Bytes query_at(std::int64_t task) const {
    return bytes_of(sample_of(task) * shape.sequence * qkv_stride + head_of(task) * depth, shape.dtype);
  }
  Bytes key_at(std::int64_t task) const { return key_head_at(task, head_of(task) / shape.group()); }
  Bytes value_at(std::int64_t task) const {
    return key_head_at(task, shape.key_heads + head_of(task) / shape.group());
  }
  Bytes output_at(std::int64_t task) const {
    return bytes_of(sample_of(task) * shape.sequence * shape.width + head_of(task) * depth, shape.dtype);
  }
  Bytes qkv_rows(std::int64_t rows) const { return bytes_of(rows * qkv_stride, shape.dtype); }
  Bytes output_rows(std::int64_t rows) const { return bytes_of(rows * shape.width, shape.dtype); }

 private:
  std::int64_t sample_of(std::int64_t task) const { return task / shape.heads; }
  std::int64_t head_of(std::int64_t task) const { return task % shape.heads; }
  Bytes key_head_at(std::int64_t task, std::int64_t head) const {
    return bytes_of(sample_of(task) * key_rows.of_sample * key_rows.stride + key_rows.before + head * depth,
                    shape.dtype);
  }
};

// Queries first .. first + rows, which attend to keys among the first `keys`, and the products they need.
struct QueryTile {
  std::int64_t first, rows, keys;
  const Gemm *scores, *output;  // forward; backward uses scores too
  const Gemm *dprobabilities = nullptr, *dquery = nullptr, *dkey = nullptr, *dvalue = nullptr;  // backward
};

QueryTile make_tile(const HeadView& view, std::int64_t first, bool backward, GemmCache& gemms) {
  const AttentionShape& s = view.shape;
  const std::int64_t rows = std::min(query_tile_rows, s.sequence - first), depth = view.depth;
  const auto keys = static_cast<std::int64_t>(
      round_up(static_cast<Bytes>(view.past + first + rows), static_cast<Bytes>(view.key_multiple)));
  const DType type = s.dtype;
  QueryTile tile{.first = first, .rows = rows, .keys = keys, .scores = nullptr, .output = nullptr};
  tile.scores = &gemms.get({.m = rows,
                            .n = keys,
                            .k = depth,
                            .a_stride = view.qkv_stride,
                            .b_stride = view.key_rows.stride,
                            .c_stride = keys,
                            .b_transposed = true,
                            .input = type,
                            .output = DType::f32});
  if (!backward) {
    tile.output = &gemms.get({.m = rows,
                              .n = depth,
                              .k = keys,
                              .a_stride = keys,
                              .b_stride = view.key_rows.stride,
                              .c_stride = s.width,
                              .input = type,
                              .output = type});
    return tile;
  }
  tile.dprobabilities = &gemms.get({.m = rows,
                                    .n = keys,
                                    .k = depth,
                                    .a_stride = s.width,
                                    .b_stride = view.qkv_stride,
                                    .c_stride = keys,
                                    .b_transposed = true,
                                    .input = type,
                                    .output = DType::f32});
  tile.dquery = &gemms.get({.m = rows,
                            .n = depth,
                            .k = keys,
                            .a_stride = keys,
                            .b_stride = view.qkv_stride,
                            .c_stride = view.qkv_stride,
                            .input = type,
                            .output = type});
  GemmShape by_key{.m = keys,
                   .n = depth,
                   .k = rows,
                   .a_stride = keys,
                   .b_stride = view.qkv_stride,
                   .c_stride = depth,
                   .a_transposed = true,
                   .input = type,
                   .output = DType::f32,
                   .accumulate = true};
  tile.dkey = &gemms.get(by_key);
  by_key.b_stride = s.width;
  tile.dvalue = &gemms.get(by_key);
  return tile;
}

std::vector<QueryTile> make_tiles(const HeadView& view, bool backward, GemmCache& gemms) {
  std::vector<QueryTile> tiles;
  for (std::int64_t first = 0; first < view.shape.sequence; first += query_tile_rows)
    tiles.push_back(make_tile(view, first, backward, gemms));
  return tiles;
}

// Offsets into one thread's scratch memory.
struct Scratch {
  Bytes scores = 0, probabilities = 0, log_sums = 0, dprobabilities = 0, dscores = 0, dkey = 0, dvalue = 0,
        dot = 0, product = 0;
  Bytes total = 0;

  Scratch(const HeadView& view, const std::vector<QueryTile>& tiles, bool backward) {
    const std::int64_t sequence = view.shape.sequence, rows = std::min(query_tile_rows, sequence);
    const std::int64_t keys = tiles.empty() ? 0 : tiles.back().keys;
    const auto take = [this](Bytes bytes) { return std::exchange(total, total + round_up(bytes, 64)); };
    scores = take(bytes_of(rows * keys, DType::f32));
    probabilities = take(bytes_of(rows * keys, view.shape.dtype));
    if (!backward) log_sums = take(bytes_of(rows, DType::f32));
    if (backward) {
      dprobabilities = take(bytes_of(rows * sequence, DType::f32));
      dscores = take(bytes_of(rows * sequence, view.shape.dtype));
      dkey = take(bytes_of(sequence * view.depth, DType::f32));
      dvalue = take(bytes_of(sequence * view.depth, DType::f32));
      dot = take(bytes_of(rows, DType::f32));
    }
    Bytes largest = 0;
    for (const QueryTile& tile : tiles)
      for (const Gemm* gemm :
           {tile.scores, tile.output, tile.dprobabilities, tile.dquery, tile.dkey, tile.dvalue})
        if (gemm != nullptr) largest = std::max(largest, gemm->scratch_bytes());
    product = take(largest);
  }
};

struct ForwardTask {
  HeadView view;
  std::vector<QueryTile> tiles;
  Scratch at;
  const std::byte *qkv, *keys;  // keys: the rows of keys and values
  std::byte* output;
  float* log_sums;  // null: not wanted

  void run(std::int64_t task, std::byte* scratch) const {
    const std::byte* query = qkv + view.query_at(task);
    const std::byte* key = keys + view.key_at(task);
    const std::byte* value = keys + view.value_at(task);
    std::byte* out = output + view.output_at(task);
    auto* scores = reinterpret_cast<float*>(scratch + at.scores);
    std::byte* probabilities = scratch + at.probabilities;
    for (const QueryTile& tile : tiles) {
      tile.scores->run(query + view.qkv_rows(tile.first), key, nullptr, scores, scratch + at.product);
      row_kernels(view.shape.dtype)
          .softmax({.scores = scores,
                    .probabilities = probabilities,
                    .log_sum = log_sums != nullptr ? log_sums + task * view.shape.sequence + tile.first
                                                   : reinterpret_cast<float*>(scratch + at.log_sums),
                    .scale = view.scale,
                    .rows = tile.rows,
                    .first_keys = view.past + tile.first + 1,
                    .columns = tile.keys,
                    .stride = tile.keys});
      tile.output->run(probabilities, value, nullptr, out + view.output_rows(tile.first),
                       scratch + at.product);
    }
  }
};

struct BackwardTask {
  HeadView view;
  std::vector<QueryTile> tiles;
  Scratch at;
  const std::byte *qkv, *output, *doutput;
  const float* log_sums;
  std::byte* dqkv;

  // Every query head of a sample that shares the key head.
  void run(std::int64_t key_task, std::byte* scratch) const {
    auto* dkey = reinterpret_cast<float*>(scratch + at.dkey);
    auto* dvalue = reinterpret_cast<float*>(scratch + at.dvalue);
    const std::int64_t sequence = view.shape.sequence, depth = view.depth;
    std::fill_n(dkey, sequence * depth, 0.0f);
    std::fill_n(dvalue, sequence * depth, 0.0f);
    const std::int64_t group = view.shape.group(), first = key_task * group;
    for (std::int64_t task = first; task < first + group; ++task)
      for (const QueryTile& tile : tiles) run_tile(task, tile, scratch);
    const RowKernels& kernels = row_kernels(view.shape.dtype);
    for (std::int64_t r = 0; r < sequence; ++r) {
      kernels.round(dkey + r * depth, dqkv + view.key_at(first) + view.qkv_rows(r), depth);
      kernels.round(dvalue + r * depth, dqkv + view.value_at(first) + view.qkv_rows(r), depth);
    }
  }

  void run_tile(std::int64_t task, const QueryTile& tile, std::byte* scratch) const {
    const std::byte* query = qkv + view.query_at(task) + view.qkv_rows(tile.first);
    const std::byte* key = qkv + view.key_at(task);
    const std::byte* value = qkv + view.value_at(task);
    const Bytes rows_at = view.output_at(task) + view.output_rows(tile.first);
    const std::byte* dout = doutput + rows_at;
    auto* scores = reinterpret_cast<float*>(scratch + at.scores);
    auto* dprobabilities = reinterpret_cast<float*>(scratch + at.dprobabilities);
    auto* dot = reinterpret_cast<float*>(scratch + at.dot);
    std::byte* product = scratch + at.product;
    const RowKernels& kernels = row_kernels(view.shape.dtype);

    kernels.row_dots(output + rows_at, dout, tile.rows, view.depth, view.shape.width, dot);
    tile.scores->run(query, key, nullptr, scores, product);
    tile.dprobabilities->run(dout, value, nullptr, dprobabilities, product);
    kernels.softmax_backward({.scores = scores,
                              .dprobabilities = dprobabilities,
                              .log_sum = log_sums + task * view.shape.sequence + tile.first,
                              .dot = dot,
                              .probabilities = scratch + at.probabilities,
                              .dscores = scratch + at.dscores,
                              .scale = view.scale,
                              .rows = tile.rows,
                              .first_keys = tile.first + 1,
                              .columns = tile.keys,
                              .stride = tile.keys});
    tile.dquery->run(scratch + at.dscores, key, nullptr,
                     dqkv + view.query_at(task) + view.qkv_rows(tile.first), product);
    tile.dkey->run(scratch + at.dscores, query, nullptr, scratch + at.dkey, product);
    tile.dvalue->run(scratch + at.probabilities, dout, nullptr, scratch + at.dvalue, product);
  }
};

}  // namespace

void CpuOps::attention(const AttentionShape& shape, const std::byte* qkv, std::byte* output,
                       float* log_sums) {
  const HeadView view{.shape = shape};
  std::vector<QueryTile> tiles = make_tiles(view, false, gemms_);
  const Scratch at(view, tiles, false);
  const StackScope scope(memory_);
  std::byte* scratch = push_scratch(at.total);
  enqueue_pieces("attention", shape.batch * shape.heads, 1,
                 [work = ForwardTask{view, std::move(tiles), at, qkv, qkv, output, log_sums}, scratch](
                     std::int64_t task, std::int64_t, int thread) {
                   work.run(task, scratch + work.at.total * static_cast<Bytes>(thread));
                 });
}

void CpuOps::cached_attention(const AttentionShape& shape, const std::byte* qkv, const KeyValueCache& cache,
                              std::byte* output) {
  HEADRACE_CHECK(cache.used + shape.sequence <= cache.capacity && cache.capacity % cache_rows_multiple == 0,
                 "{} positions behind {} in a cache of {}", shape.sequence, cache.used, cache.capacity);
  const std::int64_t before = shape.heads * shape.depth(), width = shape.cached_width();
  enqueue_pieces(
      "key-value cache", shape.batch * shape.sequence, pass_grain_rows(width),
      [=](std::int64_t begin, std::int64_t end, int) {
        for (std::int64_t row = begin; row < end; ++row) {
          const std::int64_t to = row / shape.sequence * cache.capacity + cache.used + row % shape.sequence;
          std::copy_n(qkv + bytes_of(row * shape.qkv_width() + before, shape.dtype),
                      bytes_of(width, shape.dtype), cache.rows + bytes_of(to * width, shape.dtype));
        }
      });
  const HeadView view{.shape = shape,
                      .key_rows = rows_of_cache(shape, cache),
                      .past = cache.used,
                      .key_multiple = cache_rows_multiple};
  std::vector<QueryTile> tiles = make_tiles(view, false, gemms_);
  const Scratch at(view, tiles, false);
  const StackScope scope(memory_);
  std::byte* scratch = push_scratch(at.total);
  enqueue_pieces("cached attention", shape.batch * shape.heads, 1,
                 [work = ForwardTask{view, std::move(tiles), at, qkv, cache.rows, output, nullptr}, scratch](
                     std::int64_t task, std::int64_t, int thread) {
                   work.run(task, scratch + work.at.total * static_cast<Bytes>(thread));
                 });
}

void CpuOps::attention_backward(const AttentionShape& shape, const std::byte* qkv, const std::byte* output,
                                const std::byte* doutput, const float* log_sums, std::byte* dqkv) {
  const HeadView view{.shape = shape};
  std::vector<QueryTile> tiles = make_tiles(view, true, gemms_);
  const Scratch at(view, tiles, true);
  const StackScope scope(memory_);
  std::byte* scratch = push_scratch(at.total);
  enqueue_pieces("attention backward", shape.batch * shape.key_heads, 1,
                 [work = BackwardTask{view, std::move(tiles), at, qkv, output, doutput, log_sums, dqkv},
                  scratch](std::int64_t key_task, std::int64_t, int thread) {
                   work.run(key_task, scratch + work.at.total * static_cast<Bytes>(thread));
                 });
}

}  // namespace headrace

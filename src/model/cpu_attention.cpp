// Causal attention on the CPU. One thread takes one head of one sample and walks its queries in tiles, so
// that keys above the diagonal are skipped and the scores of a tile stay in its cache. Backward, it takes one
// head of keys and walks the query heads that share it in order: no sum crosses threads.
#include <algorithm>
#include <cmath>
#include <vector>

#include "src/model/cpu_ops.h"
#include "src/model/cpu_pieces.h"

namespace headrace {
namespace {

constexpr std::int64_t query_tile_rows = 128;

// Where one query head of one sample, a task, lies within qkv, output and log_sums, and the head of keys and
// values that it shares.
struct HeadView {
  AttentionShape shape;
  std::int64_t depth = shape.depth();
  std::int64_t qkv_stride = shape.qkv_width();
  float scale = 1.0f / std::sqrt(static_cast<float>(depth));

  Bytes query_at(std::int64_t task) const { return qkv_at(task, head_of(task)); }
  Bytes key_at(std::int64_t task) const { return qkv_at(task, shape.heads + head_of(task) / shape.group()); }
  Bytes value_at(std::int64_t task) const {
    return qkv_at(task, shape.heads + shape.key_heads + head_of(task) / shape.group());
  }
  Bytes output_at(std::int64_t task) const {
    return bytes_of(sample_of(task) * shape.sequence * shape.width + head_of(task) * depth, shape.dtype);
  }
  Bytes qkv_rows(std::int64_t rows) const { return bytes_of(rows * qkv_stride, shape.dtype); }
  Bytes output_rows(std::int64_t rows) const { return bytes_of(rows * shape.width, shape.dtype); }

 private:
  std::int64_t sample_of(std::int64_t task) const { return task / shape.heads; }
  std::int64_t head_of(std::int64_t task) const { return task % shape.heads; }
  Bytes qkv_at(std::int64_t task, std::int64_t head) const {
    return bytes_of(sample_of(task) * shape.sequence * qkv_stride + head * depth, shape.dtype);
  }
};

// Queries first .. first + rows, which attend to the first `keys` keys, and the products they need.
struct QueryTile {
  std::int64_t first, rows, keys;
  const Gemm *scores, *output;  // forward; backward uses scores too
  const Gemm *dprobabilities = nullptr, *dquery = nullptr, *dkey = nullptr, *dvalue = nullptr;  // backward
};

QueryTile make_tile(const HeadView& view, std::int64_t first, bool backward, GemmCache& gemms) {
  const AttentionShape& s = view.shape;
  const std::int64_t rows = std::min(query_tile_rows, s.sequence - first), keys = first + rows,
                     depth = view.depth;
  const DType type = s.dtype;
  QueryTile tile{.first = first, .rows = rows, .keys = keys, .scores = nullptr, .output = nullptr};
  tile.scores = &gemms.get({.m = rows,
                            .n = keys,
                            .k = depth,
                            .a_stride = view.qkv_stride,
                            .b_stride = view.qkv_stride,
                            .c_stride = keys,
                            .b_transposed = true,
                            .input = type,
                            .output = DType::f32});
  if (!backward) {
    tile.output = &gemms.get({.m = rows,
                              .n = depth,
                              .k = keys,
                              .a_stride = keys,
                              .b_stride = view.qkv_stride,
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
  Bytes scores = 0, probabilities = 0, dprobabilities = 0, dscores = 0, dkey = 0, dvalue = 0, dot = 0,
        product = 0;
  Bytes total = 0;

  Scratch(const HeadView& view, const std::vector<QueryTile>& tiles, bool backward) {
    const std::int64_t sequence = view.shape.sequence, rows = std::min(query_tile_rows, sequence);
    const auto take = [this](Bytes bytes) { return std::exchange(total, total + round_up(bytes, 64)); };
    scores = take(bytes_of(rows * sequence, DType::f32));
    probabilities = take(bytes_of(rows * sequence, view.shape.dtype));
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
  const std::byte* qkv;
  std::byte* output;
  float* log_sums;

  void run(std::int64_t task, std::byte* scratch) const {
    const std::byte* query = qkv + view.query_at(task);
    const std::byte* key = qkv + view.key_at(task);
    const std::byte* value = qkv + view.value_at(task);
    std::byte* out = output + view.output_at(task);
    auto* scores = reinterpret_cast<float*>(scratch + at.scores);
    std::byte* probabilities = scratch + at.probabilities;
    for (const QueryTile& tile : tiles) {
      tile.scores->run(query + view.qkv_rows(tile.first), key, nullptr, scores, scratch + at.product);
      row_kernels(view.shape.dtype)
          .softmax({.scores = scores,
                    .probabilities = probabilities,
                    .log_sum = log_sums + task * view.shape.sequence + tile.first,
                    .scale = view.scale,
                    .rows = tile.rows,
                    .first_keys = tile.first + 1,
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
                 [work = ForwardTask{view, std::move(tiles), at, qkv, output, log_sums}, scratch](
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

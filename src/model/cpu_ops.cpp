#include "src/model/cpu_ops.h"

#include <omp.h>

#include <algorithm>
#include <array>
#include <atomic>

#include "headrace/cpu_pool.h"
#include "headrace/errors.h"
#include "src/model/cpu_pieces.h"

namespace headrace {
namespace {

std::int64_t numel_of(const Matrix& m) {
  return m.rows * m.columns;
}

// A product cut in pieces of at least some 64 MFLOP, each side to multiples of 32 where it is long enough.
// One of few rows takes as long as reading its other operand, which is counted as the work of 64 rows.
struct Tiling {
  std::int64_t rows, columns;  // of one tile
};
Tiling tiling_of(std::int64_t m, std::int64_t n, std::int64_t k) {
  constexpr double flop_per_tile = 128e6;
  constexpr std::int64_t shortest_side = 128, multiple = 32, fewest_rows = 64;
  const auto half = [](std::int64_t side) { return std::int64_t(round_up((side + 1) / 2, multiple)); };
  Tiling tile{m, n};
  const double work =
      2.0 * static_cast<double>(std::max(m, fewest_rows)) * static_cast<double>(n) * static_cast<double>(k);
  for (double tiles = 2; tiles <= 64 && work / tiles >= flop_per_tile; tiles *= 2) {
    std::int64_t& longer = tile.rows >= tile.columns ? tile.rows : tile.columns;
    if (longer < 2 * shortest_side) break;
    longer = half(longer);
  }
  return tile;
}

}  // namespace

CpuOps::CpuOps(Device& device, DeviceMemory& memory, bool native_bf16)
    : device_(device),
      memory_(memory),
      threads_(std::max(1, device.info().compute_threads)),
      gemms_(native_bf16) {}

// As many strands as threads take the pieces one by one; a strand's number is the place of its scratch
// memory.
void CpuOps::enqueue_pieces(const char* name, std::int64_t count, std::int64_t grain, PieceBody body) {
  device_.enqueue(Lane::compute, name, [count, grain, threads = threads_, body = std::move(body)] {
    const std::int64_t pieces = (count + grain - 1) / grain;
    std::atomic<std::int64_t> next{0};
    const auto strand = [&](std::uint64_t number, std::uint64_t) {
      omp_set_num_threads(1);  // of this thread: oneDNN runs on it alone
      for (std::int64_t piece; (piece = next.fetch_add(1)) < pieces;)
        body(piece * grain, std::min(count, (piece + 1) * grain), static_cast<int>(number));
    };
    parallel_ranges(static_cast<std::uint64_t>(std::min<std::int64_t>(threads, pieces)), 1, strand);
  });
}

std::byte* CpuOps::push_scratch(Bytes bytes_per_thread) {
  return memory_.push(MemoryTag::workspace, round_up(bytes_per_thread, 64) * static_cast<Bytes>(threads_));
}

void CpuOps::matmul(const Matrix& a, const Matrix& b, Transpose transpose, const std::byte* bias,
                    const Matrix& c, bool accumulate) {
  const bool a_transposed = transpose == Transpose::a, b_transposed = transpose == Transpose::b;
  const std::int64_t k = a_transposed ? a.rows : a.columns;
  HEADRACE_CHECK(
      c.rows == (a_transposed ? a.columns : a.rows) && c.columns == (b_transposed ? b.rows : b.columns) &&
          k == (b_transposed ? b.columns : b.rows),
      "product of {} x {} and {} x {} to {} x {}", a.rows, a.columns, b.rows, b.columns, c.rows, c.columns);
  const Tiling tile = tiling_of(c.rows, c.columns, k);
  const std::int64_t row_tiles = (c.rows + tile.rows - 1) / tile.rows;
  const std::int64_t column_tiles = (c.columns + tile.columns - 1) / tile.columns;
  GemmShape shape{.m = tile.rows,
                  .n = tile.columns,
                  .k = k,
                  .a_stride = a.stride,
                  .b_stride = b.stride,
                  .c_stride = c.stride,
                  .a_transposed = a_transposed,
                  .b_transposed = b_transposed,
                  .input = a.dtype,
                  .output = c.dtype,
                  .bias = bias != nullptr,
                  .accumulate = accumulate};
  // Whole tiles, and those cut short by the lower, the right border, or both.
  std::array<const Gemm*, 4> gemms;
  Bytes scratch_bytes = 0;
  for (unsigned kind = 0; kind < 4; ++kind) {
    shape.m = (kind & 1) != 0 ? c.rows - (row_tiles - 1) * tile.rows : tile.rows;
    shape.n = (kind & 2) != 0 ? c.columns - (column_tiles - 1) * tile.columns : tile.columns;
    gemms[kind] = &gemms_.get(shape);
    scratch_bytes = std::max(scratch_bytes, round_up(gemms[kind]->scratch_bytes(), 64));
  }
  const StackScope scope(memory_);
  std::byte* scratch = push_scratch(scratch_bytes);
  const auto body = [=](std::int64_t piece, std::int64_t, int thread) {
    const std::int64_t r = piece / column_tiles, column = piece % column_tiles;
    const unsigned kind = (r + 1 == row_tiles ? 1u : 0u) | (column + 1 == column_tiles ? 2u : 0u);
    const std::int64_t row_at = r * tile.rows, column_at = column * tile.columns;
    gemms[kind]->run(a.data + bytes_of(a_transposed ? row_at : row_at * a.stride, a.dtype),
                     b.data + bytes_of(b_transposed ? column_at * b.stride : column_at, b.dtype),
                     bias != nullptr ? bias + bytes_of(column_at, a.dtype) : nullptr,
                     c.data + bytes_of(row_at * c.stride + column_at, c.dtype),
                     scratch + scratch_bytes * static_cast<Bytes>(thread));
  };
  enqueue_pieces("matmul", row_tiles * column_tiles, 1, body);
}

void CpuOps::column_sums(const Matrix& x, std::byte* sums) {
  const std::int64_t chunks = chunks_of(x.rows);
  const StackScope scope(memory_);
  auto* partials = reinterpret_cast<float*>(
      memory_.push(MemoryTag::workspace, bytes_of((chunks + 1) * x.columns, DType::f32)));
  enqueue_pieces("column sums", x.rows, sum_chunk_rows, [=](std::int64_t begin, std::int64_t end, int) {
    float* sum = partials + begin / sum_chunk_rows * x.columns;
    std::fill_n(sum, x.columns, 0.0f);
    row_kernels(x.dtype).column_sums(x.data + bytes_of(begin * x.stride, x.dtype), end - begin, x.columns,
                                     x.stride, sum);
  });
  device_.enqueue(Lane::compute, "column sums", [=] {
    float* total = partials + chunks * x.columns;
    combine_chunks(partials, chunks, x.columns, total);
    row_kernels(x.dtype).round(total, sums, x.columns);
  });
}

void CpuOps::gelu(const Matrix& x, std::byte* y) {
  enqueue_pieces("gelu", numel_of(x), pass_grain_numel, [=](std::int64_t begin, std::int64_t end, int) {
    const Bytes at = bytes_of(begin, x.dtype);
    row_kernels(x.dtype).gelu(x.data + at, y + at, end - begin);
  });
}

void CpuOps::gelu_backward(const Matrix& x, std::byte* dy, std::byte* y) {
  enqueue_pieces("gelu backward", numel_of(x), pass_grain_numel,
                 [=](std::int64_t begin, std::int64_t end, int) {
                   const Bytes at = bytes_of(begin, x.dtype);
                   row_kernels(x.dtype).gelu_backward(x.data + at, dy + at, y + at, end - begin);
                 });
}

void CpuOps::swiglu(const Matrix& hidden, std::byte* y) {
  const std::int64_t width = hidden.columns / 2;
  enqueue_pieces("swiglu", hidden.rows, pass_grain_rows(width),
                 [=](std::int64_t begin, std::int64_t end, int) {
                   const Bytes row_bytes = bytes_of(width, hidden.dtype);
                   for (std::int64_t r = begin; r < end; ++r) {
                     const std::byte* gate = hidden.data + 2 * static_cast<Bytes>(r) * row_bytes;
                     row_kernels(hidden.dtype)
                         .swiglu(gate, gate + row_bytes, y + static_cast<Bytes>(r) * row_bytes, width);
                   }
                 });
}

void CpuOps::swiglu_backward(const Matrix& hidden, std::byte* dy) {
  const std::int64_t width = hidden.columns / 2;
  enqueue_pieces(
      "swiglu backward", hidden.rows, pass_grain_rows(width), [=](std::int64_t begin, std::int64_t end, int) {
        const Bytes row_bytes = bytes_of(width, hidden.dtype);
        for (std::int64_t r = begin; r < end; ++r) {
          std::byte* gate = hidden.data + 2 * static_cast<Bytes>(r) * row_bytes;
          row_kernels(hidden.dtype)
              .swiglu_backward(gate, gate + row_bytes, dy + static_cast<Bytes>(r) * row_bytes, width);
        }
      });
}

void CpuOps::add(const Matrix& a, const std::byte* b, std::byte* sum) {
  enqueue_pieces("add", numel_of(a), pass_grain_numel, [=](std::int64_t begin, std::int64_t end, int) {
    const Bytes at = bytes_of(begin, a.dtype);
    row_kernels(a.dtype).add(a.data + at, b + at, sum + at, end - begin);
  });
}

void CpuOps::round_to(const float* high, std::byte* low, DType dtype, std::int64_t numel) {
  enqueue_pieces("round", numel, pass_grain_numel, [=](std::int64_t begin, std::int64_t end, int) {
    row_kernels(dtype).round(high + begin, low + bytes_of(begin, dtype), end - begin);
  });
}

}  // namespace headrace

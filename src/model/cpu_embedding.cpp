// Embedding and loss on the CPU: the two ends of the model, which read token ids.
#include <algorithm>

#include "headrace/errors.h"
#include "src/model/cpu_ops.h"
#include "src/model/cpu_pieces.h"

namespace headrace {
namespace {

constexpr std::int64_t row_grain = 32;
constexpr std::int64_t table_grain_rows = 64;
constexpr std::int64_t part_numel = 256;  // columns summed at a time, in registers and on the thread's stack

std::int32_t checked_id(const TokenBatch& tokens, std::int64_t sample, std::int64_t position) {
  const std::int32_t id = tokens.ids[sample * (tokens.sequence + 1) + position];
  if (id < 0 || id >= tokens.vocabulary)
    throw UsageError(fmt::format("token {} of sample {} is {}: the model's vocabulary has ids 0 to {}",
                                 position, sample, id, tokens.vocabulary - 1));
  return id;
}

// Which predictions read which token, sorted by token, in order within one: first[v] .. first[v + 1] of
// `rows`.
struct RowsByToken {
  std::int32_t* first;
  std::int32_t* rows;
};

void sort_rows(const TokenBatch& tokens, const RowsByToken& sorted) {
  std::fill_n(sorted.first, tokens.vocabulary + 1, 0);
  for (std::int64_t s = 0; s < tokens.batch; ++s)
    for (std::int64_t p = 0; p < tokens.sequence; ++p) ++sorted.first[checked_id(tokens, s, p)];
  std::int32_t before = 0;
  for (std::int64_t v = 0; v <= tokens.vocabulary; ++v) before += std::exchange(sorted.first[v], before);
  for (std::int64_t s = 0; s < tokens.batch; ++s)
    for (std::int64_t p = 0; p < tokens.sequence; ++p)
      sorted.rows[sorted.first[checked_id(tokens, s, p)]++] =
          static_cast<std::int32_t>(s * tokens.sequence + p);
  for (std::int64_t v = tokens.vocabulary; v > 0; --v) sorted.first[v] = sorted.first[v - 1];
  sorted.first[0] = 0;
}

// One row of a table's gradient: start (fp32 or null) plus the rows of dx that for_each_row names, in its
// order.
template <class ForEachRow>
void sum_rows(const float* start, const std::byte* dx, const Matrix& table, std::int64_t row,
              ForEachRow for_each_row) {
  const RowKernels& kernels = row_kernels(table.dtype);
  for (std::int64_t at = 0; at < table.columns; at += part_numel) {
    const std::int64_t numel = std::min(part_numel, table.columns - at);
    float sum[part_numel] = {};
    if (start != nullptr) std::copy_n(start + row * table.columns + at, numel, sum);
    for_each_row([&](std::int64_t r) {
      kernels.accumulate(dx + bytes_of(r * table.columns + at, table.dtype), sum, numel);
    });
    kernels.round(sum, table.data + bytes_of(row * table.stride + at, table.dtype), numel);
  }
}

}  // namespace

void CpuOps::embedding(const TokenBatch& tokens, const Matrix& token_table, const Matrix& position_table,
                       std::byte* x) {
  const std::int64_t width = token_table.columns;
  enqueue_pieces(
      "embedding", tokens.batch * tokens.sequence, row_grain, [=](std::int64_t begin, std::int64_t end, int) {
        const DType dtype = token_table.dtype;
        for (std::int64_t r = begin; r < end; ++r) {
          const std::int64_t position = r % tokens.sequence;
          const std::int64_t id = checked_id(tokens, r / tokens.sequence, position);
          const std::byte* token = token_table.data + bytes_of(id * width, dtype);
          std::byte* to = x + bytes_of(r * width, dtype);
          if (position_table.rows == 0)
            std::copy_n(token, bytes_of(width, dtype), to);
          else
            row_kernels(dtype).add(token, position_table.data + bytes_of(position * width, dtype), to, width);
        }
      });
}

void CpuOps::embedding_backward(const TokenBatch& tokens, const std::byte* dx, const float* tied_gradient,
                                const Matrix& dtoken, const Matrix& dposition) {
  const std::int64_t count = tokens.batch * tokens.sequence;
  const StackScope scope(memory_);
  auto* ids = reinterpret_cast<std::int32_t*>(memory_.push(
      MemoryTag::workspace, static_cast<Bytes>(tokens.vocabulary + 1 + count) * sizeof(std::int32_t)));
  const RowsByToken sorted{ids, ids + tokens.vocabulary + 1};
  device_.enqueue(Lane::compute, "sort tokens", [=] { sort_rows(tokens, sorted); });
  enqueue_pieces("token embedding backward", tokens.vocabulary, table_grain_rows,
                 [=](std::int64_t begin, std::int64_t end, int) {
                   for (std::int64_t v = begin; v < end; ++v)
                     sum_rows(tied_gradient, dx, dtoken, v, [&](auto add) {
                       for (std::int32_t i = sorted.first[v]; i < sorted.first[v + 1]; ++i)
                         add(sorted.rows[i]);
                     });
                 });
  if (dposition.rows == 0) return;
  enqueue_pieces("position embedding backward", dposition.rows, table_grain_rows,
                 [=](std::int64_t begin, std::int64_t end, int) {
                   for (std::int64_t p = begin; p < end; ++p)
                     sum_rows(nullptr, dx, dposition, p, [&](auto add) {
                       for (std::int64_t s = 0; s < tokens.batch && p < tokens.sequence; ++s)
                         add(s * tokens.sequence + p);
                     });
                 });
}

void CpuOps::cross_entropy(const CrossEntropyArguments& a) {
  const StackScope scope(memory_);
  auto* targets = reinterpret_cast<std::int32_t*>(
      memory_.push(MemoryTag::workspace, static_cast<Bytes>(a.rows) * sizeof(std::int32_t)));
  const CrossEntropyRows rows{.logits = a.logits,
                              .targets = targets,
                              .losses = a.losses != nullptr ? a.losses + a.first_row : nullptr,
                              .dlogits = a.dlogits,
                              .gradient_factor = a.gradient_factor,
                              .vocabulary = a.tokens.vocabulary};
  enqueue_pieces("cross-entropy", a.rows, pass_grain_rows(a.tokens.vocabulary),
                 [=, tokens = a.tokens, first = a.first_row, dtype = a.dtype](std::int64_t begin,
                                                                              std::int64_t end, int) {
                   for (std::int64_t r = begin; r < end; ++r)
                     targets[r] =
                         checked_id(tokens, (first + r) / tokens.sequence, (first + r) % tokens.sequence + 1);
                   row_kernels(dtype).cross_entropy(rows, begin, end);
                 });
}

void CpuOps::mean_loss(const double* losses, std::int64_t count, float* mean) {
  device_.enqueue(Lane::compute, "mean loss", [=] {
    double sum = 0;
    for (std::int64_t i = 0; i < count; ++i) sum += losses[i];
    *mean = static_cast<float>(sum / static_cast<double>(count));
  });
}

}  // namespace headrace

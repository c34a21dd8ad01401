#include "src/model/decoder_head.h"

#include <algorithm>

#include "headrace/bytes.h"
#include "src/model/stack_scope.h"

namespace headrace {
namespace {

using namespace literals;

// Of fp32 logits and their gradient that exist at a time. Each further piece of rows reads and writes the
// whole fp32 table gradient once more, which is what a smaller bound costs.
constexpr Bytes logits_bound = 32_MiB;

std::int64_t rows_at_a_time(std::int64_t rows, std::int64_t vocabulary, DType dtype) {
  constexpr std::int64_t multiple = 32;
  const auto fitting =
      static_cast<std::int64_t>(logits_bound / (static_cast<Bytes>(vocabulary) * (4 + size_of(dtype))));
  return std::min(rows, std::max(multiple, fitting / multiple * multiple));
}

}  // namespace

void DecoderHead::run(const FlatUnit& weights, const Matrix& table, const TokenBatch& tokens, const Matrix& x,
                      const HeadPass& pass) const {
  const StackScope scope(memory_);
  Rows all;
  all.normal = push_activations(memory_, shape_, shape_.width);
  const std::unique_ptr<FinalNorm> norm = family_.make_final_norm(ops_, memory_);
  norm->push_kept();
  norm->forward(weights, x, all.normal.data);
  const std::int64_t table_numel = table.rows * table.columns;
  if (pass.stream != nullptr) {
    all.dnormal = push_activations(memory_, shape_, shape_.width);
    all.table_gradient = pass.tied_gradient;
    if (all.table_gradient == nullptr)
      all.table_gradient = reinterpret_cast<float*>(
          memory_.push(MemoryTag::gradients, static_cast<Bytes>(table_numel) * sizeof(float)));
  }
  const std::int64_t step = rows_at_a_time(shape_.rows(), table.rows, shape_.dtype);
  for (std::int64_t first = 0; first < shape_.rows(); first += step)
    run_rows(table, tokens, pass, all, first, std::min(step, shape_.rows() - first));
  if (pass.stream == nullptr) return;

  const FlatUnit& gradient = *pass.gradient;
  if (pass.tied_gradient == nullptr)
    ops_.round_to(all.table_gradient, gradient.at(gradient.parameters() - 1), gradient.dtype, table_numel);
  norm->backward(weights, gradient, x, all.dnormal, pass.stream->data);
}

void DecoderHead::run_rows(const Matrix& table, const TokenBatch& tokens, const HeadPass& pass,
                           const Rows& all, std::int64_t first, std::int64_t count) const {
  const StackScope scope(memory_);
  const std::int64_t vocabulary = table.rows;
  const auto push = [&](DType dtype) {
    const Bytes bytes = static_cast<Bytes>(count * vocabulary) * size_of(dtype);
    return matrix(memory_.push(MemoryTag::activations, bytes), dtype, count, vocabulary);
  };
  const Matrix normal = row_range(all.normal, first, count);
  const Matrix logits = push(DType::f32);
  const bool backward = pass.stream != nullptr;
  const Matrix dlogits = backward ? push(shape_.dtype) : Matrix{};
  ops_.matmul(normal, table, Transpose::b, nullptr, logits);
  ops_.cross_entropy({.logits = reinterpret_cast<const float*>(logits.data),
                      .tokens = tokens,
                      .first_row = first,
                      .rows = count,
                      .losses = pass.losses,
                      .dlogits = dlogits.data,
                      .dtype = shape_.dtype,
                      .gradient_factor = pass.gradient_factor});
  if (!backward) return;
  ops_.matmul(dlogits, table, Transpose::none, nullptr, row_range(all.dnormal, first, count));
  ops_.matmul(dlogits, normal, Transpose::a, nullptr,
              matrix(reinterpret_cast<std::byte*>(all.table_gradient), DType::f32, vocabulary, table.columns),
              first > 0);
}

}  // namespace headrace

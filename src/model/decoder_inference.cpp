#include "src/model/decoder_inference.h"

#include <algorithm>

#include "headrace/errors.h"
#include "src/model/stack_scope.h"

namespace headrace {
namespace {

using namespace literals;

constexpr std::size_t token_table = 0, position_table = 1;  // parameters of the embedding
constexpr Bytes logits_bound = 32_MiB;                      // of them that exist at a time

std::int64_t cache_rows(const InferenceOptions& options) {
  return static_cast<std::int64_t>(
      round_up(static_cast<Bytes>(options.positions), static_cast<Bytes>(cache_rows_multiple)));
}

Bytes layer_cache_bytes(const ModelConfig& config, const InferenceOptions& options) {
  const std::int64_t columns = 2 * std::int64_t{config.key_head_count()} * config.head_columns();
  return static_cast<Bytes>(options.batch * cache_rows(options) * columns) * size_of(options.dtype);
}

}  // namespace

DecoderInference::DecoderInference(const ModelConfig& config, const InferenceOptions& options)
    : config_(config), options_(options) {
  // Of all positions, as training in sequences of them would be checked.
  (void)make_family(config, {.dtype = options.dtype, .batch = options.batch, .sequence = options.positions});
  HEADRACE_CHECK(options.tokens_at_once > 0, "{} tokens at once", options.tokens_at_once);
  prepare(1);
}

void DecoderInference::prepare(int tokens) {
  if (tokens == family_tokens_) return;
  family_ = make_family(config_, {.dtype = options_.dtype, .batch = options_.batch, .sequence = tokens});
  family_tokens_ = tokens;
}

void DecoderInference::bind(Model::Context context) {
  context_ = std::move(context);
  for (int layer = 0; layer < config_.layers; ++layer) {
    const Bytes bytes = layer_cache_bytes(config_, options_);
    caches_.push_back(context_.memory->persistent(MemoryTag::activations, bytes));
    context_.device->fill_zero(Lane::compute, caches_.back(), bytes);
  }
}

void DecoderInference::append(std::span<const std::int32_t> tokens, Logits which, const Visit& visit) {
  const int count = static_cast<int>(tokens.size()) / options_.batch;
  HEADRACE_CHECK(
      count > 0 &&
          tokens.size() == static_cast<std::size_t>(count) * static_cast<std::size_t>(options_.batch) &&
          used_ + count <= options_.positions,
      "{} tokens for {} sequences behind {} of {} positions", tokens.size(), options_.batch, used_,
      options_.positions);
  for (int first = 0; first < count; first += options_.tokens_at_once) {
    const int piece = std::min(options_.tokens_at_once, count - first);
    const bool is_last = first + piece == count;
    run_pass(tokens, first, piece, which == Logits::last && !is_last ? Logits::none : which, visit);
  }
}

// Tokens first ... first + count of each sequence.
void DecoderInference::run_pass(std::span<const std::int32_t> tokens, int first, int count, Logits which,
                                const Visit& visit) {
  const StackScope scope(*context_.memory);
  prepare(count);
  const Matrix x = embed(tokens, first, count);
  for (int layer = 0; layer < config_.layers; ++layer) run_block(layer, x);
  used_ += count;
  if (which == Logits::all)
    run_head(x, used_ - count, visit);
  else if (which == Logits::last)
    run_head(last_rows(x), used_ - 1, visit);
  context_.device->host_wait(context_.device->record(Lane::compute));  // ids_ are read until then
}

Matrix DecoderInference::embed(std::span<const std::int32_t> tokens, int first, int count) {
  const auto in_a_row = static_cast<std::ptrdiff_t>(tokens.size()) / options_.batch;
  ids_.clear();
  for (int sequence = 0; sequence < options_.batch; ++sequence) {
    const auto from = tokens.begin() + sequence * in_a_row + first;
    ids_.insert(ids_.end(), from, from + count);
    ids_.push_back(0);  // in the place of a target
  }
  const Bytes bytes = ids_.size() * sizeof(ids_[0]);
  std::byte* ids = context_.memory->push(MemoryTag::workspace, bytes);
  context_.device->copy(Lane::compute, ids, ids_.data(), bytes);
  const Matrix x = push_activations(*context_.memory, shape_of(count), config_.width);
  const FlatUnit weights = acquire(0);
  const Matrix positions = weights.parameters() > position_table
                               ? row_range(weights.matrix_of(position_table), used_, count)
                               : Matrix{};
  context_.ops->embedding({.ids = reinterpret_cast<const std::int32_t*>(ids),
                           .batch = options_.batch,
                           .sequence = count,
                           .vocabulary = config_.vocabulary},
                          weights.matrix_of(token_table), positions, x.data);
  release(0);
  return x;
}

// In place.
void DecoderInference::run_block(int layer, const Matrix& x) {
  const StackScope scope(*context_.memory);
  const std::size_t unit = static_cast<std::size_t>(layer) + 1;
  const std::unique_ptr<DecoderBlock> block = family_->make_block(*context_.ops, *context_.memory);
  block->push_kept();
  const KeyValueCache cache{.rows = caches_[unit - 1], .capacity = cache_rows(options_), .used = used_};
  const FlatUnit weights = acquire(unit);
  block->forward(weights, x, x.data, &cache);
  release(unit);
}

// The last one of each sequence, end to end.
Matrix DecoderInference::last_rows(const Matrix& x) const {
  const std::int64_t in_a_row = x.rows / options_.batch;
  if (in_a_row == 1) return x;
  const Matrix rows = push_activations(*context_.memory, shape_of(1), x.columns);
  for (std::int64_t sequence = 0; sequence < options_.batch; ++sequence) {
    const Matrix to = row_range(rows, sequence, 1);
    context_.device->copy(Lane::compute, to.data, row_range(x, (sequence + 1) * in_a_row - 1, 1).data,
                          static_cast<Bytes>(x.columns) * size_of(x.dtype));
  }
  return rows;
}

void DecoderInference::run_head(const Matrix& rows, int first_position, const Visit& visit) {
  DeviceMemory& memory = *context_.memory;
  const FlatUnit weights = acquire(context_.units.size() - 1);
  const Matrix table = config_.tied_embedding ? acquire(0).matrix_of(token_table)
                                              : weights.matrix_of(weights.parameters() - 1);
  const Matrix normal = matrix(
      memory.push(MemoryTag::activations, static_cast<Bytes>(rows.rows * rows.columns) * size_of(rows.dtype)),
      rows.dtype, rows.rows, rows.columns);
  const std::unique_ptr<FinalNorm> norm = family_->make_final_norm(*context_.ops, memory);
  norm->push_kept();
  norm->forward(weights, rows, normal.data);
  const auto vocabulary = static_cast<std::size_t>(config_.vocabulary);
  const std::int64_t in_a_row = rows.rows / options_.batch;
  const std::int64_t step = std::min(
      rows.rows,
      std::max<std::int64_t>(1, static_cast<std::int64_t>(logits_bound / (vocabulary * sizeof(float)))));
  const Matrix logits =
      matrix(memory.push(MemoryTag::activations, static_cast<Bytes>(step) * vocabulary * sizeof(float)),
             DType::f32, step, config_.vocabulary);
  logits_.resize(static_cast<std::size_t>(step) * vocabulary);
  for (std::int64_t first = 0; first < rows.rows; first += step) {
    const std::int64_t count = std::min(step, rows.rows - first);
    context_.ops->matmul(row_range(normal, first, count), table, Transpose::b, nullptr,
                         row_range(logits, 0, count));
    context_.device->copy(Lane::compute, logits_.data(), logits.data,
                          static_cast<Bytes>(count) * vocabulary * sizeof(float));
    context_.device->host_wait(context_.device->record(Lane::compute));
    for (std::int64_t r = first; r < first + count; ++r)
      visit(static_cast<int>(r / in_a_row), first_position + static_cast<int>(r % in_a_row),
            std::span(logits_).subspan(static_cast<std::size_t>(r - first) * vocabulary, vocabulary));
  }
  if (config_.tied_embedding) release(0);
  release(context_.units.size() - 1);
}

std::unique_ptr<Inference> make_inference(const ModelConfig& config, const InferenceOptions& options) {
  return std::make_unique<DecoderInference>(config, options);
}

Bytes key_value_cache_bytes(const ModelConfig& config, const InferenceOptions& options) {
  return static_cast<Bytes>(config.layers) * layer_cache_bytes(config, options);
}

}  // namespace headrace

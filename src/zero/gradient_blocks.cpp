#include "src/zero/gradient_blocks.h"

#include <algorithm>

#include "headrace/errors.h"

namespace headrace {

GradientBlocks::GradientBlocks(EngineContext& context, ScratchStore& store)
    : context_(context),
      store_(store),
      gradients_(context, store, store.buffer_bytes(ScratchKind::gradients),
                 context.options.gradient_buffers),
      update_reader_(gradients_, BlockRing::Use::read, gradients_.count()) {
  if (context.options.accumulation == 1) return;
  sums_ = std::make_unique<BlockRing>(context, store, store.buffer_bytes(ScratchKind::accumulators),
                                      context.options.gradient_buffers);
  // The other half of the buffers is being written.
  sum_reader_ =
      std::make_unique<BlockReader>(*sums_, BlockRing::Use::read_and_write, std::max(1u, sums_->count() / 2));
}

template <class Visit>
void GradientBlocks::for_each_block(UnitId unit, Range part, const Visit& visit) const {
  const auto [first, last] = store_.blocks_of(unit);
  for (std::uint32_t b = first; b < last; ++b) {
    const Range block = store_.blocks()[b].range;
    const std::uint64_t from = std::max(block.first, part.first), to = std::min(block.end(), part.end());
    if (from < to) visit(b, Range{from, to - from});
  }
}

void GradientBlocks::keep(UnitId unit, Range part, const std::byte* source) {
  const Bytes element = context_.element_bytes();
  for_each_block(unit, part, [&](std::uint32_t b, Range slice) {
    const Range block = store_.blocks()[b].range;
    if (slice.first == block.first) open(b, {.last = true});
    context_.device.copy(Lane::download,
                         BlockRing::memory(open_gradient_) + (slice.first - block.first) * element,
                         source + (slice.first - part.first) * element, slice.numel * element);
    if (slice.end() == block.end()) close({.last = true});
  });
}

void GradientBlocks::accumulate(UnitId unit, Range part, const Sum& sum) {
  for_each_block(unit, part, [&](std::uint32_t b, Range slice) {
    const OptimizerBlock& block = store_.blocks()[b];
    if (slice.first == block.range.first) open(b, sum);
    if (sum.source != nullptr) add(block, slice, sum, slice.first - part.first);
    if (sum.last) round(block, slice, sum.partials + (slice.first - part.first) / norm_chunk_numel);
    if (slice.end() == block.range.end()) close(sum);
  });
}

void GradientBlocks::open(std::uint32_t block, const Sum& sum) {
  if (accumulates()) {
    const BlockRing::Index index = store_.index(ScratchKind::accumulators, block);
    if (sum.first) sum_reader_->drop_all();  // an order that differs from the micro-batch before
    open_sum_ = sum.first ? sums_->ask(index, BlockRing::Use::overwrite) : sum_reader_->take(index);
    sums_->enqueue_await(Lane::download, open_sum_);
  }
  if (!sum.last) return;
  open_gradient_ = gradients_.ask(store_.index(ScratchKind::gradients, block), BlockRing::Use::overwrite);
  gradients_.enqueue_await(Lane::download, open_gradient_);
}

void GradientBlocks::close(const Sum& sum) {
  if (accumulates()) {
    if (sum.last)
      sums_->enqueue_release(Lane::download, open_sum_);  // the sum is not needed again
    else
      sums_->enqueue_write(Lane::download, open_sum_);
    open_sum_.reset();
  }
  if (!sum.last) return;
  gradients_.enqueue_write(Lane::download, open_gradient_);
  open_gradient_.reset();
}

void GradientBlocks::add(const OptimizerBlock& block, Range part, const Sum& sum, std::uint64_t skipped) {
  auto* const total =
      reinterpret_cast<float*>(BlockRing::memory(open_sum_)) + (part.first - block.range.first);
  const float* source = sum.source + skipped;
  if (sum.first) return context_.device.copy(Lane::download, total, source, part.numel * sizeof(float));
  const void* staged = sum.staging + skipped * sizeof(float);
  context_.device.copy(Lane::download, sum.staging + skipped * sizeof(float), source,
                       part.numel * sizeof(float));
  context_.device.enqueue(Lane::download, "accumulate gradient", [total, staged, numel = part.numel] {
    sum_slices({&staged, 1}, DType::f32, numel, total, true);
  });
}

void GradientBlocks::round(const OptimizerBlock& block, Range part, double* partials) {
  const std::uint64_t skipped = part.first - block.range.first;
  const float* total = reinterpret_cast<const float*>(BlockRing::memory(open_sum_)) + skipped;
  std::byte* rounded = BlockRing::memory(open_gradient_) + skipped * context_.element_bytes();
  context_.device.enqueue(Lane::download, "round gradient",
                          [=, dtype = context_.options.dtype, numel = part.numel] {
                            round_and_norm(total, rounded, dtype, numel, partials);
                          });
}

void GradientBlocks::expect_sums(const std::vector<UnitId>& units) {
  if (!accumulates()) return;
  std::vector<BlockRing::Index> sequence;
  for (const UnitId unit : units) {
    const auto [first, last] = store_.blocks_of(unit);
    for (std::uint32_t b = first; b < last && sequence.size() < sum_reader_->depth(); ++b)
      sequence.push_back(store_.index(ScratchKind::accumulators, b));
  }
  sum_reader_->expect(sequence);
}

void GradientBlocks::finish() {
  if (accumulates()) {
    sum_reader_->drop_all();
    sums_->flush();
  }
  gradients_.flush();
}

void GradientBlocks::begin_update(std::vector<std::uint32_t> blocks) {
  for (std::uint32_t& block : blocks) block = store_.index(ScratchKind::gradients, block);
  update_order_ = std::move(blocks);
  next_update_ = 0;
  update_reader_.expect(update_order_);
}

const std::byte* GradientBlocks::take(std::uint32_t block, std::optional<Lane> lane) {
  const BlockRing::Index index = store_.index(ScratchKind::gradients, block);
  HEADRACE_CHECK(next_update_ < update_order_.size() && update_order_[next_update_] == index,
                 "the gradient of block {} is taken out of order", block);
  ++next_update_;
  taken_ = update_reader_.take(index);
  if (lane)
    gradients_.enqueue_await(*lane, taken_);
  else
    context_.nvme_waits.time([&] { gradients_.await(taken_); });
  return BlockRing::memory(taken_);
}

void GradientBlocks::release(std::optional<Lane> lane) {
  if (lane)
    gradients_.enqueue_release(*lane, taken_);
  else
    gradients_.release(taken_);
  taken_.reset();
  update_reader_.expect(std::span(update_order_).subspan(next_update_));
}

std::uint64_t GradientBlocks::inspect(UnitId unit, Range part,
                                      const std::function<std::uint64_t(const std::byte*)>& look) {
  std::uint64_t answer = 0;
  for_each_block(unit, part, [&](std::uint32_t b, Range) {
    begin_update({b});
    const Bytes skipped = (part.first - store_.blocks()[b].range.first) * context_.element_bytes();
    answer = look(take(b, std::nullopt) + skipped);
    release(std::nullopt);
  });
  return answer;
}

void GradientBlocks::abandon() noexcept {
  gradients_.abandon();
  if (accumulates()) sums_->abandon();
}

double GradientBlocks::waited_seconds(Lane lane) const {
  return gradients_.waited_seconds(lane) + (accumulates() ? sums_->waited_seconds(lane) : 0);
}

}  // namespace headrace

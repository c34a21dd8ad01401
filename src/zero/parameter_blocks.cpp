#include "src/zero/parameter_blocks.h"

namespace headrace {

ParameterBlocks::ParameterBlocks(EngineContext& context, ScratchStore& store)
    : context_(context),
      store_(store),
      ring_(context, store, store.buffer_bytes(ScratchKind::parameters), context.options.parameter_buffers),
      reader_(ring_, BlockRing::Use::read, ring_.count()) {}

void ParameterBlocks::upload(UnitId unit, std::byte* memory) {
  const Bytes element = context_.element_bytes();
  const auto [first, last] = store_.blocks_of(unit);
  for (std::uint32_t b = first; b < last; ++b) {
    const Range range = store_.blocks()[b].range;
    const BlockRing::Handle passage = reader_.take(store_.index(ScratchKind::parameters, b));
    ring_.enqueue_await(Lane::upload, passage);
    context_.device.copy(Lane::upload, memory + range.first * element, BlockRing::memory(passage),
                         range.numel * element);
    ring_.enqueue_release(Lane::upload, passage);
  }
}

void ParameterBlocks::read_ahead(const std::vector<UnitId>& units) {
  std::vector<BlockRing::Index> sequence;
  for (const UnitId unit : units) {
    const auto [first, last] = store_.blocks_of(unit);
    for (std::uint32_t b = first; b < last && sequence.size() < reader_.depth(); ++b)
      sequence.push_back(store_.index(ScratchKind::parameters, b));
  }
  reader_.expect(sequence);
}

std::byte* ParameterBlocks::begin_write(std::uint32_t block, std::optional<Lane> lane) {
  open_ = ring_.ask(store_.index(ScratchKind::parameters, block), BlockRing::Use::overwrite);
  if (lane)
    ring_.enqueue_await(*lane, open_);
  else
    context_.nvme_waits.time([&] { ring_.await(open_); });
  return BlockRing::memory(open_);
}

void ParameterBlocks::end_write(std::optional<Lane> lane) {
  if (lane)
    ring_.enqueue_write(*lane, open_);
  else
    ring_.write(open_);
  open_.reset();
}

}  // namespace headrace

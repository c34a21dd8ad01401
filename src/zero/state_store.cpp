#include "src/zero/state_store.h"

#include "headrace/errors.h"

namespace headrace {

namespace {
constexpr Bytes page_bytes = 4096;
}

StateStore::StateStore(EngineContext& context, std::vector<OptimizerBlock> blocks)
    : context_(context), blocks_(std::move(blocks)), in_flight_(blocks_.size()) {
  if (tier() == Tier::nvme) {
    const Bytes buffer = round_up(block_numel(context.options) * state_bytes_per_element, page_bytes);
    pool_ = std::make_unique<StagingPool>(context.host_budget, MemoryTag::staging, buffer,
                                          context.options.swap_buffers);
    context.device.pin(pool_->memory());
    return;
  }
  Bytes total = 0;
  std::vector<Bytes> offsets;
  for (const OptimizerBlock& block : blocks_) {
    offsets.push_back(total);
    total += block.range.numel * state_bytes_per_element;
  }
  std::byte* base = nullptr;
  if (tier() == Tier::device) {
    base = context.device_memory.persistent(MemoryTag::optimizer, total);
  } else {
    host_ = HostBuffer(context.host_budget, MemoryTag::optimizer, total);
    base = host_.data();
  }
  for (const Bytes offset : offsets) resident_.push_back(base + offset);
}

void StateStore::create_swap() {
  if (tier() != Tier::nvme) return;
  const EngineOptions& options = context_.options;
  swap_ =
      SwapStore::create({.directory = options.swap_directory,
                         .durability = options.durability,
                         .layout = swap_layout(context_.units, blocks_, options, context_.communicator.rank(),
                                               context_.communicator.size())},
                        swap_blocks(context_.units, blocks_), *context_.io);
}

void StateStore::open_swap() {
  const EngineOptions& options = context_.options;
  if (tier() != Tier::nvme)
    throw UsageError(
        "--resume swap needs optimizer states on NVMe: add --offload-optimizer nvme and the run's "
        "--swap-path.");
  if (options.durability == Durability::none)
    throw UsageError(
        "a run with durability none keeps no journal and cannot be resumed from its swap store.");
  swap_ = SwapStore::open({.directory = options.swap_directory,
                           .durability = options.durability,
                           .layout = swap_layout(context_.units, blocks_, options,
                                                 context_.communicator.rank(), context_.communicator.size())},
                          *context_.io);
}

void StateStore::read(std::uint32_t block) {
  if (tier() != Tier::nvme) return;
  HEADRACE_CHECK(!in_flight_[block].reading && !in_flight_[block].buffer, "block {} is read twice", block);
  in_flight_[block].reading = swap_->read(block, pool_->acquire());
}

StateBlock StateStore::state(std::uint32_t block) {
  const std::uint64_t numel = blocks_[block].range.numel;
  if (tier() != Tier::nvme) return state_block(resident_[block], numel);
  InFlight& flight = in_flight_[block];
  if (flight.reading) {
    flight.reading.wait();
    flight.buffer = flight.reading.take();
    flight.reading = {};
  }
  HEADRACE_CHECK(flight.buffer, "block {} is used before it is read", block);
  return state_block(flight.buffer.data(), numel);
}

StateBlock StateStore::overwrite(std::uint32_t block) {
  if (tier() == Tier::nvme) in_flight_[block].buffer = pool_->acquire();
  return state(block);
}

void StateStore::write(std::uint32_t block) {
  if (tier() != Tier::nvme) return;
  InFlight& flight = in_flight_[block];
  flight.writing = swap_->write(block, std::move(flight.buffer));
}

void StateStore::reclaim(std::uint32_t block) {
  InFlight& flight = in_flight_[block];
  if (flight.writing) {
    flight.writing.wait();
    flight.writing = {};
  }
  flight = {};
}

void StateStore::abandon() noexcept {
  for (InFlight& flight : in_flight_) flight = {};  // a dropped ticket waits for its transfer
}

}  // namespace headrace

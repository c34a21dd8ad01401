#include "src/zero/state_store.h"

#include <algorithm>
#include <numeric>

#include "headrace/cpu_pool.h"
#include "headrace/errors.h"

namespace headrace {

Bytes resident_state_bytes(std::uint64_t numel, const StateFormat& format) {
  constexpr Bytes cache_line = 64;
  return round_up(state_bytes(format, numel), cache_line);
}

Bytes state_buffer_bytes(std::uint64_t numel, const EngineOptions& options) {
  return round_up(state_bytes(options.state_format(), numel),
                  SwapStore::buffer_alignment(options.swap_directories.size(), options.swap_parity));
}

std::vector<bool> cached_blocks(const std::vector<OptimizerBlock>& blocks, const EngineOptions& options) {
  std::uint64_t largest = 0;
  for (const OptimizerBlock& block : blocks) largest = std::max(largest, block.range.numel);
  std::vector<bool> cached(blocks.size());
  if (largest == 0) return cached;
  const std::uint64_t fitting =
      std::min<std::uint64_t>(blocks.size(), options.swap_cache_bytes / state_buffer_bytes(largest, options));
  for (std::size_t b = 0; b < blocks.size(); ++b)
    cached[b] = (b + 1) * fitting / blocks.size() > b * fitting / blocks.size();
  return cached;
}

Bytes bytes_of_chosen(const std::vector<OptimizerBlock>& blocks, const std::vector<bool>& chosen,
                      const EngineOptions& options) {
  Bytes total = 0;
  for (std::size_t b = 0; b < blocks.size(); ++b)
    if (chosen[b]) total += state_buffer_bytes(blocks[b].range.numel, options);
  return total;
}

StateStore::StateStore(EngineContext& context, std::vector<OptimizerBlock> blocks,
                       std::uint32_t region_blocks)
    : context_(context),
      format_(context.options.state_format()),
      blocks_(std::move(blocks)),
      resident_(blocks_.size()),
      loaded_(blocks_.size()),
      in_flight_(blocks_.size()) {
  if (tier() != Tier::nvme) {
    allocate_resident(region_blocks);
    return;
  }
  pool_ = std::make_unique<StagingPool>(context.host_budget, MemoryTag::staging,
                                        state_buffer_bytes(block_numel(context.options), context.options),
                                        context.options.swap_buffers);
  const std::vector<Bytes> buffer_bytes(pool_->count(), pool_->buffer_bytes());
  pool_nodes_ = NodeMemory(pool_->memory(), deal_blocks(cpu_placement(), buffer_bytes));
  pool_pin_ = context.pin_for_io(pool_->memory());
  allocate_cache();
}

void StateStore::allocate_resident(std::uint32_t region_blocks) {
  std::vector<Bytes> block_bytes;
  for (const OptimizerBlock& block : blocks_)
    block_bytes.push_back(resident_state_bytes(block.range.numel, format_));
  const Bytes total = std::accumulate(block_bytes.begin(), block_bytes.end(), Bytes{0});
  std::byte* next = nullptr;
  if (tier() == Tier::device) {
    next = context_.device_memory.persistent(MemoryTag::optimizer, total);
  } else {
    host_ = HostBuffer(context_.host_budget, MemoryTag::optimizer, total);
    host_nodes_ = NodeMemory(host_.memory(), deal_blocks(cpu_placement(), block_bytes, region_blocks));
    next = host_.data();
  }
  for (std::uint32_t b = 0; b < blocks_.size(); ++b) {
    resident_[b] = next;
    next += block_bytes[b];
  }
}

void StateStore::allocate_cache() {
  const std::vector<bool> chosen = cached_blocks(blocks_, context_.options);
  host_ = HostBuffer(context_.host_budget, MemoryTag::optimizer,
                     bytes_of_chosen(blocks_, chosen, context_.options));
  std::vector<Bytes> block_bytes;
  for (std::size_t b = 0; b < blocks_.size(); ++b)
    if (chosen[b]) block_bytes.push_back(state_buffer_bytes(blocks_[b].range.numel, context_.options));
  host_nodes_ = NodeMemory(host_.memory(), deal_blocks(cpu_placement(), block_bytes));
  host_pin_ = context_.pin_for_io(host_.memory());
  std::byte* next = host_.data();
  for (std::size_t b = 0; b < blocks_.size(); ++b) {
    if (!chosen[b]) continue;
    resident_[b] = next;
    next += state_buffer_bytes(blocks_[b].range.numel, context_.options);
  }
}

SwapStoreOptions swap_store_options(const EngineOptions& options) {
  return {.directories = options.swap_directories,
          .durability = options.durability,
          .layout = "",
          .parity = options.swap_parity,
          .path_rates = options.swap_path_rates,
          .pins = options.swap_pins};
}

SwapStoreOptions StateStore::store_options() {
  const EngineOptions& options = context_.options;
  SwapStoreOptions store = swap_store_options(options);
  store.layout = swap_layout(context_.units, blocks_, options, context_.communicator.rank(),
                             context_.communicator.size());
  if (parity_.memory().empty())
    if (const Bytes bytes = SwapStore::parity_bytes(swap_blocks(context_.units, blocks_, format_), store);
        bytes > 0) {
      parity_ = HostBuffer(context_.host_budget, MemoryTag::staging, bytes);
      parity_pin_ = context_.pin_for_io(parity_.memory());
    }
  store.parity_memory = parity_.memory();
  return store;
}

void StateStore::create_swap() {
  if (tier() != Tier::nvme) return;
  swap_ = SwapStore::create(store_options(), swap_blocks(context_.units, blocks_, format_), *context_.io);
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
  const SwapStoreOptions store = store_options();
  try {
    swap_ = SwapStore::open(store, *context_.io);
  } catch (const UsageError&) {
    refuse_other_layout(context_, store.layout);
    throw;
  }
}

HostLease StateStore::buffer_for(std::uint32_t block) {
  if (!cached(block)) return pool_->acquire();
  return HostLease::borrowed(
      {resident_[block], state_buffer_bytes(blocks_[block].range.numel, context_.options)});
}

void StateStore::read(std::uint32_t block) {
  if (tier() != Tier::nvme || loaded_[block]) return;
  HEADRACE_CHECK(!in_flight_[block].reading && !in_flight_[block].buffer, "block {} is read twice", block);
  in_flight_[block].reading = swap_->read(block, buffer_for(block));
}

std::byte* StateStore::state(std::uint32_t block) {
  InFlight& flight = in_flight_[block];
  if (flight.reading) {
    context_.nvme_waits.time([&] { flight.reading.wait(); });
    flight.buffer = flight.reading.take();
    flight.reading = {};
    loaded_[block] = cached(block);
  }
  if (tier() != Tier::nvme || loaded_[block]) return resident_[block];
  HEADRACE_CHECK(flight.buffer, "block {} is used before it is read", block);
  return flight.buffer.data();
}

std::byte* StateStore::overwrite(std::uint32_t block) {
  if (tier() == Tier::nvme) {
    in_flight_[block].buffer = buffer_for(block);
    loaded_[block] = cached(block);
  }
  return state(block);
}

void StateStore::write(std::uint32_t block) {
  if (tier() != Tier::nvme) return;
  InFlight& flight = in_flight_[block];
  HostLease buffer = cached(block) ? buffer_for(block) : std::move(flight.buffer);
  flight.writing = swap_->write(block, std::move(buffer));
}

void StateStore::reclaim(std::uint32_t block) {
  InFlight& flight = in_flight_[block];
  if (flight.writing) {
    context_.nvme_waits.time([&] { flight.writing.wait(); });
    flight.writing = {};
  }
  flight = {};
}

void StateStore::abandon() noexcept {
  for (InFlight& flight : in_flight_) flight = {};  // a dropped ticket waits for its transfer
}

}  // namespace headrace

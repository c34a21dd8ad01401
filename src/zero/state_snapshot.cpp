#include "src/zero/state_snapshot.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <numeric>

#include "headrace/elapsed.h"
#include "headrace/errors.h"

namespace headrace {
namespace {

constexpr std::uint32_t reader_buffers = 2;  // one is read into while the other one is used

struct BufferLayout {
  Bytes master_offset = 0, bytes = 0;
};
BufferLayout buffer_layout(std::span<const OptimizerBlock> blocks, const EngineOptions& options) {
  std::uint64_t largest = 0;
  for (const OptimizerBlock& block : blocks) largest = std::max(largest, block.range.numel);
  BufferLayout layout;
  layout.master_offset = state_buffer_bytes(largest, options);
  const Bytes master =
      state_bytes(kept_format(options), largest) - state_bytes(options.state_format(), largest);
  layout.bytes = round_up(layout.master_offset + master, 4096);
  return layout;
}

bool reads_from_nvme(const EngineOptions& options) {
  return options.optimizer_tier == Tier::nvme;
}

std::uint32_t buffer_count(const EngineOptions& options) {
  return options.snapshot_buffers + (reads_from_nvme(options) ? reader_buffers : 0);
}

}  // namespace

Bytes snapshot_memory_bytes(std::span<const OptimizerBlock> blocks, const EngineOptions& options) {
  return options.snapshot_buffers == 0 ? 0 : buffer_layout(blocks, options).bytes * buffer_count(options);
}

// What owner and reader share, under `mutex`.
struct StateSnapshots::Board {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::uint32_t> order;
  std::vector<Place> places;            // by block
  std::vector<std::byte*> homes;        // by block: its states in host memory; null: elsewhere
  std::vector<std::byte*> copies;       // by block, while it has one
  std::vector<std::byte*> free;         // buffers for copies
  std::vector<std::byte*> own_buffers;  // the reader's
  std::size_t first_at_home = 0;        // position: none before it is at home
  bool given_up = false;
  double waited_seconds = 0;

  void has_copy(std::uint32_t block, std::byte* buffer) {
    const std::lock_guard lock(mutex);
    copies[block] = buffer;
    places[block] = Place::copied;
    changed.notify_all();
  }
  void give_up() {
    const std::lock_guard lock(mutex);
    given_up = true;
    changed.notify_all();
  }
  // Under the lock. An update may have changed what was being read.
  void require_kept() const {
    if (given_up) throw Error("the states were given up before all had been saved.");
  }
  // The first block in the reader's order that is at home; none comes back there.
  std::optional<std::uint32_t> next_at_home() {
    while (first_at_home < order.size() && places[order[first_at_home]] != Place::at_home) ++first_at_home;
    return first_at_home < order.size() ? std::optional(order[first_at_home]) : std::nullopt;
  }
  bool in_use() const {
    return !given_up && std::ranges::any_of(places, [](Place place) { return place != Place::done; });
  }
};

StateSnapshots::StateSnapshots(EngineContext& context, StateStore& states, const ParameterStore& parameters)
    : context_(context),
      states_(states),
      parameters_(parameters),
      format_(context.options.state_format()),
      kept_format_(kept_format(context.options)),
      on_device_(states.tier() == Tier::device),
      parameters_are_master_(format_.master == MasterDType::none) {
  const BufferLayout layout = buffer_layout(states.blocks(), context.options);
  master_offset_ = layout.master_offset;
  buffer_bytes_ = layout.bytes;
  memory_ = HostBuffer(context.host_budget, MemoryTag::staging,
                       snapshot_memory_bytes(states.blocks(), context.options));
  pin_ =
      reads_from_nvme(context.options) ? context.pin_for_io(memory_.memory()) : context.pin(memory_.memory());
}

StateSnapshots::~StateSnapshots() = default;

std::byte* StateSnapshots::home_of_master(std::uint32_t block) const {
  const OptimizerBlock& target = states_.blocks()[block];
  return parameters_are_master_ ? parameters_.home(target.unit, target.range.first) : nullptr;
}

StateArrays StateSnapshots::arrays(std::uint32_t block, std::byte* states, std::byte* master) const {
  StateArrays arrays = state_arrays(format_, states, states_.blocks()[block].range.numel);
  if (parameters_are_master_) arrays.master = master;
  return arrays;
}

std::unique_ptr<StateSnapshots::Reader> StateSnapshots::begin(bool reversed) {
  HEADRACE_CHECK(board_ == nullptr || !board_->in_use(), "a snapshot is taken while another one is read");
  board_ = std::make_shared<Board>();
  const std::size_t blocks = states_.blocks().size();
  board_->order.resize(blocks);
  std::iota(board_->order.begin(), board_->order.end(), 0u);
  if (reversed) std::ranges::reverse(board_->order);
  board_->places.resize(blocks, Place::at_home);
  for (std::uint32_t b = 0; b < blocks; ++b) {
    const OptimizerBlock& block = states_.blocks()[b];
    if (answered_for(context_.units[block.unit], block.range).numel == 0) board_->places[b] = Place::done;
  }
  board_->copies.resize(blocks);
  for (std::uint32_t b = 0; b < blocks; ++b)
    board_->homes.push_back(on_device_ ? nullptr : states_.resident(b));
  for (std::uint32_t i = 0; i < buffer_count(context_.options); ++i) {
    auto& kind = i < context_.options.snapshot_buffers ? board_->free : board_->own_buffers;
    kind.push_back(memory_.data() + i * buffer_bytes_);
  }
  return std::make_unique<Reader>(*this, board_,
                                  reads_from_nvme(context_.options) ? states_.swap()->reader() : nullptr);
}

void StateSnapshots::before_update(std::uint32_t block) {
  if (board_ == nullptr) return;
  settle_copies();
  std::unique_lock lock(board_->mutex);
  for (;;) {
    Place& place = board_->places[block];
    if (place == Place::being_copied) break;  // on its way: the update waits for the lane
    if (board_->given_up || place == Place::done || place == Place::copied) return;
    if (place == Place::at_home && !board_->free.empty()) {
      // On the device in the reader's order alone: it never waits for one while all buffers hold later ones.
      copy(on_device_ ? *board_->next_at_home() : block, lock);
      continue;
    }
    if (!copying_.empty()) {
      lock.unlock();
      settle_copies();
      lock.lock();
      continue;
    }
    const auto start = std::chrono::steady_clock::now();
    board_->changed.wait(lock);
    board_->waited_seconds += seconds_since(start);
  }
  lock.unlock();
  context_.device.wait(Lane::compute, context_.device.record(Lane::download));
}

void StateSnapshots::serve() {
  if (board_ == nullptr || !on_device_) return;
  settle_copies();
  std::unique_lock lock(board_->mutex);
  while (!board_->given_up && !board_->free.empty()) {
    const std::optional<std::uint32_t> next = board_->next_at_home();
    if (!next) return;
    copy(*next, lock);
  }
}

void StateSnapshots::end() noexcept {
  if (board_ != nullptr) board_->give_up();
}

// Into a free buffer, without the lock: nobody else looks at a block that is being copied.
void StateSnapshots::copy(std::uint32_t block, std::unique_lock<std::mutex>& lock) {
  std::byte* buffer = board_->free.back();
  board_->free.pop_back();
  board_->places[block] = Place::being_copied;
  lock.unlock();
  copy(block, buffer);
  lock.lock();
}

void StateSnapshots::copy(std::uint32_t block, std::byte* buffer) {
  const OptimizerBlock& target = states_.blocks()[block];
  const Bytes bytes = states_bytes(block),
              master_bytes = state_bytes(kept_format_, target.range.numel) - bytes;
  if (!on_device_) {
    if (bytes > 0) std::memcpy(buffer, states_.state(block), bytes);
    if (master_bytes > 0) std::memcpy(buffer + master_offset_, home_of_master(block), master_bytes);
    return board_->has_copy(block, buffer);
  }
  Device& device = context_.device;
  if (bytes > 0) device.copy(Lane::download, buffer, states_.state(block), bytes);
  if (master_bytes > 0)
    device.copy(Lane::download, buffer + master_offset_, home_of_master(block), master_bytes);
  copying_.push_back({board_, block, buffer, device.record(Lane::download)});
}

// What a lane has copied is the reader's once the owner has seen the event.
void StateSnapshots::settle_copies() {
  for (; !copying_.empty(); copying_.pop_front()) {
    const Copying& oldest = copying_.front();
    context_.device.host_wait(oldest.event);
    oldest.board->has_copy(oldest.block, oldest.buffer);
  }
}

StateSnapshots::Reader::Reader(const StateSnapshots& of, std::shared_ptr<Board> board,
                               std::unique_ptr<SwapReader> store)
    : of_(of), board_(std::move(board)), store_(std::move(store)) {}

StateSnapshots::Reader::~Reader() {
  give_up();
}

void StateSnapshots::Reader::give_up() noexcept {
  board_->give_up();
}

std::span<const std::uint32_t> StateSnapshots::Reader::order() const {
  return board_->order;
}

double StateSnapshots::Reader::owner_waited_seconds() const {
  const std::lock_guard lock(board_->mutex);
  return board_->waited_seconds;
}

bool StateSnapshots::Reader::on_nvme(std::uint32_t block) const {
  return store_ != nullptr && board_->homes[block] == nullptr;
}

// Claims the block at `position` while the one before is being used, if it is still at home.
void StateSnapshots::Reader::read_ahead(std::size_t position) {
  if (position >= board_->order.size() || coming_[position % 2].memory != nullptr) return;
  const std::uint32_t block = board_->order[position];
  if (!on_nvme(block)) return;
  {
    const std::lock_guard lock(board_->mutex);
    if (board_->given_up || board_->places[block] != Place::at_home) return;
    board_->places[block] = Place::being_read;
  }
  Coming& coming = coming_[position % 2];
  coming.memory = board_->own_buffers[position % 2];
  coming.ticket = store_->read(
      block, HostLease::borrowed({coming.memory, state_buffer_bytes(of_.states_.blocks()[block].range.numel,
                                                                    of_.context_.options)}));
}

StateArrays StateSnapshots::Reader::take(std::size_t position) {
  const std::uint32_t block = board_->order[position];
  read_ahead(position);
  if (Coming& coming = coming_[position % 2]; coming.memory != nullptr) {
    coming.ticket.wait();
    return of_.arrays(block, coming.memory, of_.home_of_master(block));
  }
  std::unique_lock lock(board_->mutex);
  board_->changed.wait(lock, [&] {
    const Place place = board_->places[block];
    return board_->given_up || place == Place::copied || (place == Place::at_home && !of_.on_device_);
  });
  board_->require_kept();
  if (std::byte* copy = board_->copies[block]; copy != nullptr)
    return of_.arrays(block, copy, copy + of_.master_offset_);
  board_->places[block] = Place::being_read;
  return of_.arrays(block, board_->homes[block], of_.home_of_master(block));
}

// Another rank answers for the others.
bool StateSnapshots::Reader::wanted(std::uint32_t block) const {
  const std::lock_guard lock(board_->mutex);
  return board_->places[block] != Place::done;
}

void StateSnapshots::Reader::done(std::uint32_t block) {
  const std::lock_guard lock(board_->mutex);
  board_->require_kept();
  if (std::byte* copy = std::exchange(board_->copies[block], nullptr); copy != nullptr)
    board_->free.push_back(copy);
  board_->places[block] = Place::done;
  board_->changed.notify_all();
}

void StateSnapshots::Reader::visit(const Visit& visit) {
  try {
    for (std::size_t position = 0; position < board_->order.size(); ++position) {
      const std::uint32_t block = board_->order[position];
      if (!wanted(block)) continue;
      const StateArrays arrays = take(position);
      read_ahead(position + 1);
      visit(of_.states_.blocks()[block], arrays);
      coming_[position % 2] = {};
      done(block);
    }
  } catch (...) {
    board_->give_up();
    throw;
  }
}

}  // namespace headrace

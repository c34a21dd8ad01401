#include "swap/versioned_store.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>

#include "headrace/errors.h"
#include "headrace/log.h"
#include "swap/table_reader.h"

namespace headrace::swap {

VersionedStore::VersionedStore(StoreParts parts)
    : parts_(std::move(parts)),
      stripes_(parts_.stripes),
      working_(stripes_->map.entries()),
      step_writes_(blocks().size()),
      reads_(blocks().size()) {
  if (parts_.history.newest) working_ = parts_.history.newest->table;
}

VersionedStore::~VersionedStore() {
  if (parts_.read_only) stripes_->group.tell_damage();
  if (parts_.read_only || !stripes_->group.owned_by_this_process()) return;
  for (const BlockIndex block : written_) step_writes_[block]->complete();
  stripes_->group.close(remove_on_close_);
}

const SwapBlock& VersionedStore::block_at(BlockIndex block) const {
  HEADRACE_CHECK(block < blocks().size(), "swap block {} of {}", block, blocks().size());
  return blocks()[block];
}

std::string VersionedStore::name() const {
  return fmt::format("{}", fmt::join(stripes_->group.directories(), ", "));
}

void VersionedStore::check_writable() const {
  HEADRACE_CHECK(!parts_.read_only && stripes_->group.owned_by_this_process(),
                 "{} is written through a store opened read-only or inherited by fork", name());
  stripes_->group.check_usable();
}

void VersionedStore::check_buffer(BlockIndex block, const HostLease& buffer) const {
  HEADRACE_CHECK(buffer.memory().size() >= stripes_->map.buffer_bytes(block),
                 "a buffer of {} bytes for swap block \"{}\", which needs {}", buffer.memory().size(),
                 blocks()[block].name, stripes_->map.buffer_bytes(block));
}

Bytes VersionedStore::buffer_bytes(BlockIndex block) const {
  (void)block_at(block);
  return stripes_->map.buffer_bytes(block);
}

std::span<ExtentEntry> VersionedStore::entries_of(ExtentTable& table, BlockIndex block) const {
  return std::span(table).subspan(stripes_->map.entry(block), stripes_->map.shape().pieces());
}
std::span<const ExtentEntry> VersionedStore::entries_of(const ExtentTable& table, BlockIndex block) const {
  return std::span(table).subspan(stripes_->map.entry(block), stripes_->map.shape().pieces());
}

// A parity buffer, after waiting for the oldest transfer that holds one where all are taken.
ParityBuffers::Slot VersionedStore::parity_buffer() {
  for (;;) {
    if (ParityBuffers::Slot slot = stripes_->buffers->try_acquire()) return slot;
    HEADRACE_CHECK(!with_parity_.empty(), "no parity buffer is free, and no transfer holds one");
    if (const std::shared_ptr<Transfer> oldest = with_parity_.front().lock()) oldest->complete();
    with_parity_.pop_front();
  }
}

std::shared_ptr<Transfer> VersionedStore::start(IoDirection direction, BlockIndex block,
                                                std::span<const ExtentEntry> entries, HostLease buffer,
                                                ParityBuffers::Slot parity) {
  const bool holds_parity = static_cast<bool>(parity);
  auto transfer =
      std::make_shared<Transfer>(stripes_, direction, block, entries, std::move(buffer), std::move(parity));
  if (!holds_parity) return transfer;
  std::erase_if(with_parity_, [](const std::weak_ptr<Transfer>& held) {
    const std::shared_ptr<Transfer> transfer_of = held.lock();
    return transfer_of == nullptr || transfer_of->has_ended();
  });
  with_parity_.push_back(transfer);
  return transfer;
}

std::shared_ptr<Transfer> VersionedStore::start_read(BlockIndex block, std::span<const ExtentEntry> entries,
                                                     HostLease buffer) {
  const std::span<const ExtentEntry> data = entries.first(stripes_->map.shape().data_pieces());
  const bool degraded = stripes_->code && stripes_->map.piece_bytes(block) > 0 &&
                        std::any_of(data.begin(), data.end(), [&](const ExtentEntry& entry) {
                          return stripes_->group.is_lost(entry.path);
                        });
  return start(IoDirection::read, block, entries, std::move(buffer),
               degraded ? parity_buffer() : ParityBuffers::Slot{});
}

SwapTicket VersionedStore::read(BlockIndex block, HostLease buffer) {
  const SwapBlock& description = block_at(block);
  const std::span<const ExtentEntry> entries = entries_of(std::as_const(working_), block);
  HEADRACE_CHECK(entries.front().generation > 0, "swap block \"{}\" is read but was never written",
                 description.name);
  check_buffer(block, buffer);
  if (stripes_->group.too_many_lost()) stripes_->group.throw_too_many_lost();
  if (step_writes_[block]) step_writes_[block]->complete();  // the engine does not keep transfers in order
  std::shared_ptr<Transfer> transfer = start_read(block, entries, std::move(buffer));
  reads_[block] = transfer;
  return make_ticket(std::move(transfer));
}

std::unique_ptr<SwapReader> VersionedStore::reader() const {
  HEADRACE_CHECK(written_.empty(), "{} is read beside a step that is being written", name());
  return make_table_reader(stripes_, working_);
}

// The places of the version that a write of this step makes.
std::vector<ExtentEntry> VersionedStore::next_version(BlockIndex block) const {
  const StripeMap& map = stripes_->map;
  const auto& newest = parts_.history.newest;
  std::vector<const ExtentTable*> reserved;
  for (const auto* record : {&newest, &parts_.history.superseded})
    if (*record) reserved.push_back(&(*record)->table);
  for (const Pin& pin : parts_.pins) reserved.push_back(&pin.record.table);
  const std::uint32_t copy = map.free_copy(block, reserved);
  const std::uint64_t before = newest ? newest->table[map.entry(block)].generation : 0;
  std::vector<ExtentEntry> entries(map.shape().pieces());
  for (std::uint32_t piece = 0; piece < entries.size(); ++piece)
    entries[piece] = {map.offset(block, piece, copy), before + 1, 0, map.path_of(block, piece)};
  return entries;
}

SwapTicket VersionedStore::write(BlockIndex block, HostLease buffer) {
  check_writable();
  const SwapBlock& description = block_at(block);
  check_buffer(block, buffer);
  std::vector<ExtentEntry> entries = next_version(block);
  if (const std::shared_ptr<Transfer> reading = reads_[block].lock())
    HEADRACE_CHECK(reading->offset() != entries.front().offset || reading->is_complete(),
                   "swap block \"{}\" is overwritten while it is being read", description.name);
  const Bytes buffer_bytes = stripes_->map.buffer_bytes(block);
  if (buffer_bytes > description.bytes)
    std::memset(buffer.data() + description.bytes, 0, buffer_bytes - description.bytes);
  ParityBuffers::Slot parity;
  if (stripes_->code && buffer_bytes > 0) parity = parity_buffer();
  stripes_->seal(block, buffer.data(), parity.memory(), entries);

  if (step_writes_[block]) step_writes_[block]->complete();
  std::shared_ptr<Transfer> transfer =
      start(IoDirection::write, block, entries, std::move(buffer), std::move(parity));
  if (!step_writes_[block]) written_.push_back(block);
  step_writes_[block] = transfer;
  std::copy(entries.begin(), entries.end(), entries_of(working_, block).begin());
  return make_ticket(std::move(transfer));
}

void VersionedStore::finish_writes_of_step() {
  for (const BlockIndex block : written_) step_writes_[block]->complete();
  for (const BlockIndex block : written_) step_writes_[block]->check();
  if (stripes_->group.too_many_lost()) stripes_->group.throw_too_many_lost();
}

void VersionedStore::forget_writes_of_step() {
  for (const BlockIndex block : written_) step_writes_[block].reset();
  written_.clear();
}

void VersionedStore::commit(const SwapCommit& commit) {
  check_writable();
  CommitHistory& history = parts_.history;
  HEADRACE_CHECK(!history.newest || commit.step > history.newest->commit.step,
                 "step {} is committed after step {}", commit.step, history.newest->commit.step);
  finish_writes_of_step();
  stripes_->group.check_usable();
  CommitRecord record{history.newest ? history.newest->sequence + 1 : 1, commit, working_};
  if (keeps_steps()) {
    // After a failed flush the kernel forgets which pages were lost, so flushing again would prove nothing.
    if (flush_failed_)
      throw Error(fmt::format("{} could not be flushed in this step: roll the step back, or stop and resume.",
                              name()));
    stripes_->group.check_present();
    if (!written_.empty()) {
      flush_failed_ = true;
      stripes_->group.flush_extents();
      flush_failed_ = false;
    }
    stripes_->group.append_commit(record, history);
    history.superseded = std::move(history.newest);
  }
  history.newest = std::move(record);
  forget_writes_of_step();
}

void VersionedStore::release_superseded() {
  check_writable();
  if (!parts_.history.superseded) return;
  stripes_->group.append_release(*parts_.history.newest);
  parts_.history.superseded.reset();
}

void VersionedStore::rollback() {
  check_writable();
  if (written_.empty()) return;
  if (!keeps_steps())
    throw Error(
        fmt::format("the step in progress in {} cannot be rolled back: with durability \"none\" blocks are "
                    "updated in place. Use durability \"step\".",
                    name()));
  for (const BlockIndex block : written_) step_writes_[block]->complete();
  forget_writes_of_step();
  flush_failed_ = false;
  if (parts_.history.newest)
    working_ = parts_.history.newest->table;
  else
    std::fill(working_.begin(), working_.end(), ExtentEntry{});
}

std::vector<SwapCommit> VersionedStore::commits() const {
  std::vector<SwapCommit> commits;
  for (const auto* record : {&parts_.history.superseded, &parts_.history.newest})
    if (*record) commits.push_back((*record)->commit);
  return commits;
}

void VersionedStore::position_at(std::uint64_t step) {
  CommitHistory& history = parts_.history;
  HEADRACE_CHECK(written_.empty(), "{} is positioned in the middle of a step", name());
  if (history.newest && history.newest->commit.step == step) return;
  HEADRACE_CHECK(history.superseded && history.superseded->commit.step == step,
                 "{} does not hold step {} any more", name(), step);
  check_whole(*history.superseded);
  if (!parts_.read_only) stripes_->group.drop_newest(*history.superseded);
  history.newest = std::move(history.superseded);
  history.superseded.reset();
  working_ = history.newest->table;
}

// Reads and checks the extents of a commit that the newest one does not share.
void VersionedStore::check_whole(const CommitRecord& record) {
  std::vector<BlockIndex> own;
  Bytes largest = 0;
  for (BlockIndex block = 0; block < blocks().size(); ++block) {
    const auto older = entries_of(record.table, block);
    const auto newer = entries_of(std::as_const(parts_.history.newest->table), block);
    if (older.front().generation == 0 || std::equal(older.begin(), older.end(), newer.begin())) continue;
    own.push_back(block);
    largest = std::max(largest, stripes_->map.buffer_bytes(block));
  }
  const AlignedMemory buffer(largest);
  for (const BlockIndex block : own)
    start_read(block, entries_of(record.table, block), HostLease::borrowed(buffer.memory()))->check();
}

std::vector<SwapStore::Extent> VersionedStore::extents(BlockIndex block) const {
  (void)block_at(block);
  std::vector<Extent> extents;
  for (const ExtentEntry& entry : entries_of(working_, block))
    if (entry.generation > 0)
      extents.push_back({stripes_->group.extents_path(entry.path), entry.offset,
                         stripes_->map.checked_bytes(block), entry.generation, entry.crc32c});
  return extents;
}

std::vector<SwapStore::DamagedPiece> VersionedStore::damage(BlockIndex block) {
  const SwapBlock& description = block_at(block);
  const auto entries = entries_of(std::as_const(working_), block);
  if (entries.front().generation == 0) return {};
  if (step_writes_[block]) step_writes_[block]->complete();
  const AlignedMemory memory(stripes_->map.piece_bytes(block) * entries.size());
  std::vector<DamagedPiece> found;
  const std::vector<std::string> wrong_pieces = stripes_->read_pieces(block, entries, memory.memory().data());
  for (std::size_t piece = 0; piece < entries.size(); ++piece)
    if (const std::string& wrong = wrong_pieces[piece];
        !wrong.empty() && !stripes_->group.is_lost(entries[piece].path))
      found.push_back({piece, fmt::format("swap block \"{}\" (generation {}) is damaged in {}",
                                          description.name, entries.front().generation, wrong)});
  return found;
}

void VersionedStore::remove_on_close() {
  check_writable();
  remove_on_close_ = true;
}

}  // namespace headrace::swap

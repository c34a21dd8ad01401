#include "swap/versioned_store.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "headrace/errors.h"
#include "headrace/log.h"
#include "swap/files.h"

namespace headrace::swap {
namespace {

// Memory for direct I/O outside the pools; only where a store checks itself before the run goes on.
class ScratchBuffer {
 public:
  ScratchBuffer(Bytes alignment, Bytes bytes)
      : memory_(static_cast<std::byte*>(std::aligned_alloc(alignment, round_up(bytes + 1, alignment)))),
        bytes_(bytes) {
    if (memory_ == nullptr) throw std::bad_alloc();
  }
  HostLease lease() const { return HostLease::borrowed({memory_.get(), bytes_}); }

 private:
  struct Free {
    void operator()(std::byte* memory) const noexcept { std::free(memory); }
  };
  std::unique_ptr<std::byte, Free> memory_;
  Bytes bytes_;
};

}  // namespace

void remove_store_files(const std::string& directory) {
  if (const std::string description = join(directory, description_name); file_exists(description)) {
    remove_file(description);  // first what makes it a store: after a crash it is whole or none
    sync_folder(directory);
  }
  for (const char* name : {journal_name, extents_name}) remove_file(join(directory, name));
  for (const char* name : {description_name, journal_name, extents_name})
    remove_file(join(directory, name) + replacement_suffix);
}

VersionedStore::VersionedStore(StoreParts parts, IoEngine& engine)
    : parts_(std::move(parts)),
      engine_(engine),
      working_(blocks().size()),
      step_writes_(blocks().size()),
      reads_(blocks().size()) {
  if (parts_.history.newest) working_ = parts_.history.newest->table;
}

VersionedStore::~VersionedStore() {
  if (!parts_.lock || !parts_.lock->owned_by_this_process()) return;
  for (const BlockIndex block : written_) step_writes_[block]->complete();
  if (!remove_on_close_) return;
  try {
    remove_store_files(parts_.directory);
  } catch (const IoError& error) {
    log_warning(error.what());
  }
  parts_.lock->remove_file_on_release();
  parts_.lock.reset();
  if (parts_.description.owns_directory) ::rmdir(parts_.directory.c_str());  // stays when others use it too
}

const SwapBlock& VersionedStore::block_at(BlockIndex block) const {
  HEADRACE_CHECK(block < blocks().size(), "swap block {} of {}", block, blocks().size());
  return blocks()[block];
}

void VersionedStore::check_writable() const {
  HEADRACE_CHECK(parts_.lock && parts_.lock->owned_by_this_process(),
                 "{} is written through a store opened read-only or inherited by fork", parts_.directory);
  if (parts_.journal) parts_.journal->check_usable();
}

Bytes VersionedStore::buffer_bytes(BlockIndex block) const {
  (void)block_at(block);
  return parts_.map.extent_bytes(block);
}

std::shared_ptr<Transfer> VersionedStore::submit(IoDirection direction, BlockIndex block, ExtentEntry entry,
                                                 HostLease buffer) {
  const Bytes bytes = parts_.map.extent_bytes(block);
  if (bytes == 0)
    return std::make_shared<Transfer>(parts_.extents, direction, block, entry, IoTicket{}, std::move(buffer));
  IoTicket ticket = engine_.submit(direction, parts_.extents->file, entry.offset, std::move(buffer), bytes);
  return std::make_shared<Transfer>(parts_.extents, direction, block, entry, std::move(ticket), HostLease{});
}

SwapTicket VersionedStore::read(BlockIndex block, HostLease buffer) {
  const SwapBlock& description = block_at(block);
  HEADRACE_CHECK(working_[block].generation > 0, "swap block \"{}\" is read but was never written",
                 description.name);
  HEADRACE_CHECK(buffer.memory().size() >= parts_.map.extent_bytes(block),
                 "a buffer of {} bytes for swap block \"{}\", which needs {}", buffer.memory().size(),
                 description.name, parts_.map.extent_bytes(block));
  if (step_writes_[block]) step_writes_[block]->complete();  // the engine does not keep transfers in order
  std::shared_ptr<Transfer> transfer = submit(IoDirection::read, block, working_[block], std::move(buffer));
  reads_[block] = transfer;
  return make_ticket(std::move(transfer));
}

SwapTicket VersionedStore::write(BlockIndex block, HostLease buffer) {
  check_writable();
  const SwapBlock& description = block_at(block);
  const Bytes extent_bytes = parts_.map.extent_bytes(block);
  HEADRACE_CHECK(buffer.memory().size() >= extent_bytes,
                 "a buffer of {} bytes for swap block \"{}\", which needs {}", buffer.memory().size(),
                 description.name, extent_bytes);
  const ExtentEntry committed = parts_.history.newest ? parts_.history.newest->table[block] : ExtentEntry{};
  const ExtentEntry* superseded =
      parts_.history.superseded ? &parts_.history.superseded->table[block] : nullptr;
  ExtentEntry entry;
  entry.offset = parts_.map.free_extent(block, committed, superseded);
  entry.generation = committed.generation + 1;
  if (const std::shared_ptr<Transfer> reading = reads_[block].lock())
    HEADRACE_CHECK(reading->offset() != entry.offset || reading->is_complete(),
                   "swap block \"{}\" is overwritten while it is being read", description.name);
  const std::span<std::byte> padding =
      buffer.memory().subspan(description.bytes, extent_bytes - description.bytes);
  if (!padding.empty()) std::memset(padding.data(), 0, padding.size());
  entry.crc32c = crc32c(buffer.memory().first(description.bytes));

  if (step_writes_[block]) step_writes_[block]->complete();
  std::shared_ptr<Transfer> transfer = submit(IoDirection::write, block, entry, std::move(buffer));
  if (!step_writes_[block]) written_.push_back(block);
  step_writes_[block] = transfer;
  working_[block] = entry;
  return make_ticket(std::move(transfer));
}

void VersionedStore::finish_writes_of_step() {
  for (const BlockIndex block : written_) step_writes_[block]->complete();
  for (const BlockIndex block : written_) step_writes_[block]->check();
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
  CommitRecord record{history.newest ? history.newest->sequence + 1 : 1, commit, working_};
  if (parts_.journal) {
    // After a failed flush the kernel forgets which pages were lost, so flushing again would prove nothing.
    if (flush_failed_)
      throw Error(fmt::format("{} could not be flushed in this step: roll the step back, or stop and resume.",
                              parts_.extents->file.path()));
    if (!written_.empty()) {
      flush_failed_ = true;
      parts_.extents->file.sync_data();
      flush_failed_ = false;
    }
    parts_.journal->append_commit(record, history);
    history.superseded = std::move(history.newest);
  }
  history.newest = std::move(record);
  forget_writes_of_step();
}

void VersionedStore::release_superseded() {
  check_writable();
  if (!parts_.history.superseded) return;
  parts_.journal->append_release(*parts_.history.newest);
  parts_.history.superseded.reset();
}

void VersionedStore::rollback() {
  check_writable();
  if (written_.empty()) return;
  if (!parts_.journal)
    throw Error(
        fmt::format("the step in progress in {} cannot be rolled back: with durability \"none\" blocks are "
                    "updated in place. Use durability \"step\".",
                    parts_.directory));
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
  HEADRACE_CHECK(written_.empty(), "{} is positioned in the middle of a step", parts_.directory);
  if (history.newest && history.newest->commit.step == step) return;
  HEADRACE_CHECK(history.superseded && history.superseded->commit.step == step,
                 "{} does not hold step {} any more", parts_.directory, step);
  check_whole(*history.superseded);
  if (parts_.journal) parts_.journal->drop_newest(*history.superseded);
  history.newest = std::move(history.superseded);
  history.superseded.reset();
  working_ = history.newest->table;
}

// Reads and checks the extents of a commit that the newest one does not share.
void VersionedStore::check_whole(const CommitRecord& record) {
  std::vector<BlockIndex> own;
  Bytes largest = 0;
  for (BlockIndex block = 0; block < blocks().size(); ++block)
    if (record.table[block].generation > 0 && record.table[block] != parts_.history.newest->table[block]) {
      own.push_back(block);
      largest = std::max(largest, parts_.map.extent_bytes(block));
    }
  const ScratchBuffer buffer(
      std::max<Bytes>(default_extent_alignment, parts_.extents->file.memory_alignment()), largest);
  for (const BlockIndex block : own)
    submit(IoDirection::read, block, record.table[block], buffer.lease())->check();
}

std::vector<SwapStore::Extent> VersionedStore::extents(BlockIndex block) const {
  const SwapBlock& description = block_at(block);
  const ExtentEntry& entry = working_[block];
  if (entry.generation == 0) return {};
  return {{parts_.extents->file.path(), entry.offset, description.bytes, entry.generation, entry.crc32c}};
}

void VersionedStore::remove_on_close() {
  check_writable();
  remove_on_close_ = true;
}

}  // namespace headrace::swap

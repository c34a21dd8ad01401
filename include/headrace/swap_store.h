// Versioned extents on NVMe: named blocks of fixed size, written copy-on-write, committed by a journal
// record. It has no policy and knows no rank: who owns the folder is a string.
//
// A write goes to a free extent; the extent it replaces stays until release_superseded(). So after a crash
// the last committed step is whole, and rollback() drops the writes of the step in progress. With
// Durability::none a block has one extent, updated in place, and there is no journal.
//
// Threads: one owner thread. read and write do not block (they may wait for a queue slot of the engine);
// commit does. Files in the folder: `extents.bin` (preallocated), `journal.bin`, `store.json` (what is
// inside), `lock`.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "headrace/bytes.h"
#include "headrace/io_engine.h"

namespace headrace {

enum class Durability : std::uint8_t { step, none };

struct SwapBlock {
  std::string name;  // stable across runs; never an address
  Bytes bytes = 0;
};

struct SwapCommit {
  std::uint64_t step = 0;
  std::string metadata;  // what the engine needs to continue, opaque here (JSON)
};

struct SwapStoreOptions {
  std::string directory;  // created if its parent exists
  Durability durability = Durability::step;
  std::string layout;  // identity and description of what the blocks mean (JSON); resume requires equality
};

// Who holds a store's lock, as far as can be told without touching it.
struct SwapOwner {
  // none: closed cleanly, or never opened; unknown: of another machine or container.
  enum class State : std::uint8_t { none, alive, dead, unknown };
  State state = State::none;
  std::uint64_t pid = 0;
  std::string host;
};

// What a folder holds, read from its small files only.
struct SwapDescription {
  Durability durability = Durability::step;
  std::string layout;
  std::vector<SwapBlock> blocks;
  Bytes extent_alignment = 0;
  Bytes extents_bytes = 0;          // of extents.bin, all generations
  std::vector<SwapCommit> commits;  // as SwapStore::commits()
  SwapOwner owner;
};

// One read or write of a whole block. wait() throws IoError or CorruptData naming block, path and offset.
class SwapTicket {
 public:
  class State {
   public:
    virtual ~State() = default;
    virtual void wait() = 0;
    virtual HostLease take() = 0;
  };
  SwapTicket() = default;
  explicit SwapTicket(std::unique_ptr<State> state) : state_(std::move(state)) {}
  explicit operator bool() const { return state_ != nullptr; }
  void wait() { state_->wait(); }
  HostLease take() { return state_->take(); }

 private:
  std::unique_ptr<State> state_;
};

class SwapStore {
 public:
  using BlockIndex = std::uint32_t;
  virtual ~SwapStore() = default;  // releases the lock; the files stay unless remove() was called

  // Makes a new store, reserving every extent of both generations (DoesNotFit when the file system has too
  // little space). A stale store (its owner is dead) in the folder is reclaimed; a live one is refused with
  // its pid and host.
  static std::unique_ptr<SwapStore> create(const SwapStoreOptions& options, std::vector<SwapBlock> blocks,
                                           IoEngine& engine);
  // Opens the committed state of an earlier run; refuses a live owner, another layout or a damaged journal.
  static std::unique_ptr<SwapStore> open(const SwapStoreOptions& options, IoEngine& engine);
  // Opens without taking the lock or needing the layout, for `inspect`; write and commit are refused.
  static std::unique_ptr<SwapStore> open_read_only(const std::string& directory, IoEngine& engine);

  static SwapDescription describe(const std::string& directory);
  // UsageError when a live process owns the store there, if there is one. Changes nothing.
  static void require_free(const std::string& directory);
  // Deletes a store for good; UsageError when a live process owns it.
  static void remove(const std::string& directory);

  // Bytes of disk that create() would take.
  static Bytes disk_bytes(const std::vector<SwapBlock>& blocks, Durability durability);

  virtual const std::vector<SwapBlock>& blocks() const = 0;
  virtual const std::string& layout() const = 0;
  // Buffer bytes that a read or write of the block needs: its size rounded up to the file's alignment.
  virtual Bytes buffer_bytes(BlockIndex block) const = 0;

  // Reads the newest version: the one written in this step if there is one, else the committed one. The block
  // must have been written before. A second write of a block in one step replaces the first.
  virtual SwapTicket read(BlockIndex block, HostLease buffer) = 0;
  virtual SwapTicket write(BlockIndex block, HostLease buffer) = 0;

  // `commit.step` is larger than that of the last commit. Waits for this step's writes, flushes them, appends
  // and flushes the journal record. Afterwards the step survives a kill and the loss of power. The superseded
  // extents stay reserved. When it throws, the step is not committed: rollback() and go on.
  virtual void commit(const SwapCommit& commit) = 0;
  // The committed step is known on every rank: extents of the step before may be reused.
  virtual void release_superseded() = 0;
  // Drops every write since the last commit (waits for those in flight). With Durability::none only when
  // there are none.
  virtual void rollback() = 0;

  // Committed steps that are still whole on disk, oldest first (one or two); open() positions at the newest.
  virtual std::vector<SwapCommit> commits() const = 0;
  // Goes back to an older one of commits(), after checking that its extents are whole; the newer one is gone
  // for good (in a store opened read-only: hidden). Used when ranks differ by one step.
  virtual void position_at(std::uint64_t step) = 0;

  // Where a block's current version lies, for inspect and tests.
  struct Extent {
    std::string path;
    std::uint64_t offset = 0;
    Bytes length = 0;
    std::uint64_t generation = 0;
    std::uint32_t crc32c = 0;
  };
  virtual std::optional<Extent> extent(BlockIndex block) const = 0;

  // Deletes the store's files when the object is destroyed (a run that ended and keeps nothing).
  virtual void remove_on_close() = 0;
};

}  // namespace headrace

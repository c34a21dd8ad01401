// Versioned extents on NVMe: named blocks of fixed size, written copy-on-write, committed by a journal
// record. It has no policy and knows no rank: who owns the folders is a string.
//
// A write goes to a free extent; the extent it replaces stays until release_superseded(). So after a crash
// the last committed step is whole, and rollback() drops the writes of the step in progress. A pinned commit
// keeps its extents, without a copy, until it is unpinned; a store has room for as many as it was made for.
// With Durability::none a block has one extent, updated in place, and there is no journal.
//
// Paths: without parity a block lies on one path, chosen in proportion to path_rates. With parity m it is cut
// into paths - m data pieces and m parity pieces, one a path: up to m paths may be lost while it is open, or
// missing when it is opened (half of them or more only when they are known to be lost); one warning names
// each, and repair() brings them back. A path from which 32 damaged pieces were read counts as lost too,
// unless damage on other paths needs it. A full disk is no lost path but an error; the last commit is whole.
//
// Threads: one owner thread; with Durability::none any thread may read and write, one at a time, and wait for
// its tickets meanwhile. read and write do not block (but for a queue slot of the engine or a parity buffer);
// commit, pin and unpin do. Files in each folder: `extents.bin` (preallocated), `journal.bin`, `store.json`
// (what is inside), `lock`, and `pin-NAME.bin` for each pin. swap/format.h describes them.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "headrace/bytes.h"
#include "headrace/io_engine.h"
#include "headrace/swap_paths.h"
#include "headrace/swap_ticket.h"

namespace headrace {

struct SwapStoreOptions {
  std::vector<std::string> directories;  // one a path; each is created if its parent exists
  Durability durability = Durability::step;
  std::string layout{};  // identity and description of what the blocks mean (JSON); resume requires equality
  std::uint32_t parity = 0;              // paths that may be lost: less than there are
  std::vector<double> path_rates{};      // bytes per second of each path; empty: all alike
  std::uint32_t parity_buffers = 4;      // writes whose parity may be in flight
  std::span<std::byte> parity_memory{};  // SwapStore::parity_bytes() of the caller's; empty: the store's own
  std::uint32_t pins = 0;  // versions that can be pinned beside the last two; open() keeps the store's own
};

class SwapStore {
 public:
  using BlockIndex = std::uint32_t;
  using Directories = std::vector<std::string>;
  virtual ~SwapStore() = default;  // releases the locks; the files stay unless remove() was called

  // Makes a new store, reserving every extent of all versions (DoesNotFit when a file system has too
  // little space; nothing is left then). Stale stores (their owner is dead) in the folders are reclaimed; a
  // live one is refused with its pid and host.
  static std::unique_ptr<SwapStore> create(const SwapStoreOptions& options, std::vector<SwapBlock> blocks,
                                           IoEngine& engine);
  // Opens the committed state of an earlier run, its folders in any order; refuses a live owner, another
  // layout, a damaged journal, and more lost paths than parity. options.parity is the store's own.
  static std::unique_ptr<SwapStore> open(const SwapStoreOptions& options, IoEngine& engine);
  // Opens without taking the lock or needing the layout, for `inspect`; write and commit are refused.
  static std::unique_ptr<SwapStore> open_read_only(const Directories& directories, IoEngine& engine);

  static SwapDescription describe(const Directories& directories);
  // All folders of the store that this one belongs to, as they were called when it was made.
  static Directories directories_of(const std::string& directory);
  // Of the store that most of the folders belong to, when in doubt of one of as many paths; those that are
  // its paths as they are called here. Throws where none belongs to a store.
  static Directories directories_of(const Directories& some);
  // Equal for the folders of one store and no others. Throws where there is no readable description.
  static std::uint64_t id_of(const std::string& directory);
  // UsageError when a live process owns a store there, if there is one. Changes nothing.
  static void require_free(const Directories& directories);
  static void remove(const Directories& directories);  // for good; UsageError when a live process owns it
  // Rebuilds by parity what is missing, stale or damaged, and makes lost paths part of the store again; a
  // folder without a store takes the place of one that is missing. Checks every committed byte. A kill in
  // between leaves the store as it was, or with some paths repaired. UsageError when a live process owns it.
  static SwapRepair repair(const Directories& directories, IoEngine& engine);

  // Bytes of disk that create() would take on each path.
  static std::vector<Bytes> disk_bytes(const std::vector<SwapBlock>& blocks, const SwapStoreOptions& options);
  // Host memory for parity; 0 without.
  static Bytes parity_bytes(const std::vector<SwapBlock>& blocks, const SwapStoreOptions& options);
  // buffer_bytes() are multiples of this.
  static Bytes buffer_alignment(std::size_t paths, std::uint32_t parity);

  virtual const std::vector<SwapBlock>& blocks() const = 0;
  virtual const std::string& layout() const = 0;
  // Buffer bytes that a read or write of the block needs.
  virtual Bytes buffer_bytes(BlockIndex block) const = 0;

  // Reads the newest version: the one written in this step if there is one, else the committed one. The block
  // must have been written before. A second write of a block in one step replaces the first.
  virtual SwapTicket read(BlockIndex block, HostLease buffer) = 0;
  virtual SwapTicket write(BlockIndex block, HostLease buffer) = 0;
  // Of the newest versions, between two steps. A block can be read until it is written again.
  virtual std::unique_ptr<SwapReader> reader() const = 0;

  // `commit.step` is larger than that of the last commit. Waits for this step's writes, flushes them, appends
  // and flushes the journal record on every path. Afterwards the step survives a kill and the loss of power.
  // The superseded extents stay reserved. When it throws, the step is not committed: rollback() and go on.
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

  // Keeps the newest commit, in which nothing was written since, as `name` (letters, digits, '.', '_', '-').
  // Durable afterwards. UsageError when the store was made for no more. When it throws there is no such pin,
  // but for one that could not be taken back: pins() has it.
  virtual void pin(const std::string& name) = 0;
  virtual void unpin(const std::string& name) = 0;  // nothing happens when there is none; durable too
  virtual std::vector<SwapPin> pins() const = 0;    // oldest first
  virtual std::uint32_t most_pins() const = 0;      // that the store was made for
  // Reads what it has. Throws CorruptData or IoError where it is not whole.
  virtual void check_pin(const std::string& name) = 0;
  // Makes it the newest commit again, once it is found whole; what was newest is superseded. The pin stays.
  virtual void go_back_to_pin(const std::string& name) = 0;
  // In a store opened read-only: reads and extents() are those of the pinned commit from now on.
  virtual void position_at_pin(const std::string& name) = 0;

  // Where the pieces of a block's current version lie, data before parity; empty when never written.
  struct Extent {
    std::string path;
    std::uint64_t offset = 0;
    Bytes length = 0;  // that the checksum covers
    std::uint64_t generation = 0;
    std::uint32_t crc32c = 0;
  };
  virtual std::vector<Extent> extents(BlockIndex block) const = 0;
  // Which pieces of extents(block) are not as they were written, lost paths aside; every piece is read.
  struct DamagedPiece {
    std::size_t piece = 0;
    std::string problem;  // in words, with block, path and offset
  };
  virtual std::vector<DamagedPiece> damage(BlockIndex block) = 0;
  // Paths that the store goes on without.
  virtual Directories lost_directories() const = 0;

  // Deletes the store's files when the object is destroyed (a run that ended and keeps nothing).
  virtual void remove_on_close() = 0;
};

}  // namespace headrace

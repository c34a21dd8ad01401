// The one SwapStore: copy-on-write extents in one file, a journal of commits, a lock. swap_store.h is the
// contract; how a folder becomes a store, or a store is opened, is in open_store.cpp.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "headrace/swap_store.h"
#include "swap/description.h"
#include "swap/extent_map.h"
#include "swap/format.h"
#include "swap/journal.h"
#include "swap/lock.h"
#include "swap/transfer.h"

namespace headrace::swap {

struct StoreParts {
  std::string directory;
  Description description;  // its blocks are in `extents`
  std::shared_ptr<ExtentFile> extents;
  ExtentMap map;
  std::optional<StoreLock> lock;   // absent when opened read-only
  std::optional<Journal> journal;  // absent with Durability::none and when opened read-only
  CommitHistory history;
};

void remove_store_files(const std::string& directory);  // all but the lock

class VersionedStore final : public SwapStore {
 public:
  VersionedStore(StoreParts parts, IoEngine& engine);
  ~VersionedStore() override;

  const std::vector<SwapBlock>& blocks() const override { return parts_.extents->blocks; }
  const std::string& layout() const override { return parts_.description.layout; }
  Bytes buffer_bytes(BlockIndex block) const override;
  SwapTicket read(BlockIndex block, HostLease buffer) override;
  SwapTicket write(BlockIndex block, HostLease buffer) override;
  void commit(const SwapCommit& commit) override;
  void release_superseded() override;
  void rollback() override;
  std::vector<SwapCommit> commits() const override;
  void position_at(std::uint64_t step) override;
  std::vector<Extent> extents(BlockIndex block) const override;
  Directories lost_directories() const override { return {}; }
  void remove_on_close() override;

 private:
  const SwapBlock& block_at(BlockIndex block) const;
  void check_writable() const;
  std::shared_ptr<Transfer> submit(IoDirection direction, BlockIndex block, ExtentEntry entry,
                                   HostLease buffer);
  void finish_writes_of_step();  // waits for all, then throws the first failure
  void check_whole(const CommitRecord& record);
  void forget_writes_of_step();

  StoreParts parts_;
  IoEngine& engine_;
  ExtentTable working_;  // newest version of each block, this step's writes included
  std::vector<std::shared_ptr<Transfer>> step_writes_;  // one a block, null when not written in this step
  std::vector<BlockIndex> written_;                     // blocks with a write in this step
  std::vector<std::weak_ptr<Transfer>> reads_;          // the last read of each block
  bool flush_failed_ = false;  // this step's data may be lost in the page cache: it cannot be committed
  bool remove_on_close_ = false;
};

}  // namespace headrace::swap

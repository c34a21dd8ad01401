// The one SwapStore: copy-on-write extents on its paths, journals of commits, locks. swap_store.h is the
// contract; how folders become a store, or a store is opened, is in create_store.cpp and open_store.cpp.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "headrace/swap_store.h"
#include "swap/description.h"
#include "swap/format.h"
#include "swap/pins.h"
#include "swap/stripes.h"
#include "swap/transfer.h"

namespace headrace::swap {

struct StoreParts {
  Durability durability = Durability::step;
  std::string layout;
  bool read_only = false;
  CommitHistory history{};
  Pins pins{};  // oldest first
  std::shared_ptr<Stripes> stripes{};
};

class VersionedStore final : public SwapStore {
 public:
  explicit VersionedStore(StoreParts parts);
  ~VersionedStore() override;

  const std::vector<SwapBlock>& blocks() const override { return stripes_->blocks; }
  const std::string& layout() const override { return parts_.layout; }
  Bytes buffer_bytes(BlockIndex block) const override;
  SwapTicket read(BlockIndex block, HostLease buffer) override;
  SwapTicket write(BlockIndex block, HostLease buffer) override;
  std::unique_ptr<SwapReader> reader() const override;
  void commit(const SwapCommit& commit) override;
  void release_superseded() override;
  void rollback() override;
  std::vector<SwapCommit> commits() const override;
  void position_at(std::uint64_t step) override;
  void pin(const std::string& name) override;
  void unpin(const std::string& name) override;
  std::vector<SwapPin> pins() const override;
  std::uint32_t most_pins() const override { return stripes_->map.shape().pins; }
  void check_pin(const std::string& name) override;
  void go_back_to_pin(const std::string& name) override;
  void position_at_pin(const std::string& name) override;
  std::vector<Extent> extents(BlockIndex block) const override;
  std::vector<DamagedPiece> damage(BlockIndex block) override;
  Directories lost_directories() const override { return stripes_->group.lost_directories(); }
  void remove_on_close() override;

 private:
  const SwapBlock& block_at(BlockIndex block) const;
  std::string name() const;  // of its folders
  bool keeps_steps() const { return parts_.durability == Durability::step; }
  void check_writable() const;
  void check_buffer(BlockIndex block, const HostLease& buffer) const;
  std::span<ExtentEntry> entries_of(ExtentTable& table, BlockIndex block) const;
  std::span<const ExtentEntry> entries_of(const ExtentTable& table, BlockIndex block) const;
  std::vector<ExtentEntry> next_version(BlockIndex block) const;
  ParityBuffers::Slot parity_buffer();
  std::shared_ptr<Transfer> start(IoDirection direction, BlockIndex block,
                                  std::span<const ExtentEntry> entries, HostLease buffer,
                                  ParityBuffers::Slot parity);
  std::shared_ptr<Transfer> start_read(BlockIndex block, std::span<const ExtentEntry> entries,
                                       HostLease buffer);
  void finish_writes_of_step();  // waits for all, then throws the first failure
  void check_whole(const CommitRecord& record);
  void forget_writes_of_step();
  void take_back_pin(const std::string& name);
  const Pin& pin_called(const std::string& name) const;
  std::string names_of_pins() const;

  StoreParts parts_;
  std::string checked_pin_;  // the last one found whole
  std::shared_ptr<Stripes> stripes_;
  ExtentTable working_;  // newest version of each piece, this step's writes included
  std::vector<std::shared_ptr<Transfer>> step_writes_;  // one a block, null when not written in this step
  std::vector<BlockIndex> written_;                     // blocks with a write in this step
  std::vector<std::weak_ptr<Transfer>> reads_;          // the last read of each block
  std::deque<std::weak_ptr<Transfer>> with_parity_;     // transfers that hold a parity buffer, oldest first
  bool flush_failed_ = false;  // this step's data may be lost in the page cache: it cannot be committed
  bool remove_on_close_ = false;
};

}  // namespace headrace::swap

// One read or write of a block's extent, shared by the ticket that the caller holds and the store that waits
// for it at commit.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "headrace/io_engine.h"
#include "headrace/swap_store.h"
#include "swap/extent_map.h"

namespace headrace::swap {

// What a transfer needs for as long as it lives, even beyond the store.
struct ExtentFile {
  IoFile file;
  std::vector<SwapBlock> blocks;
};

class Transfer {
 public:
  // A transfer in flight. `ticket` is empty for a block of 0 bytes; `buffer` is then handed back as it came.
  Transfer(std::shared_ptr<const ExtentFile> file, IoDirection direction, std::uint32_t block,
           ExtentEntry entry, IoTicket ticket, HostLease buffer);
  // Blocks until the transfer is complete and checks what was read. Any thread; idempotent; does not throw.
  void complete();
  bool is_complete();
  void check();      // complete(), then throws IoError or CorruptData if it failed
  HostLease take();  // complete(), then the buffer, whatever the outcome
  std::uint64_t offset() const { return entry_.offset; }

 private:
  void verify(IoResult result);
  std::string what() const;  // read of block "name" (generation 3)

  const std::shared_ptr<const ExtentFile> file_;
  const IoDirection direction_;
  const std::uint32_t block_;
  const ExtentEntry entry_;
  std::mutex mutex_;
  IoTicket ticket_;   // until complete
  HostLease buffer_;  // afterwards
  bool complete_ = false;
  int code_ = 0;
  std::string corruption_;
};

SwapTicket make_ticket(std::shared_ptr<Transfer> transfer);

}  // namespace headrace::swap

// Blocks of files that are being rewritten because a write covers a part of them: one rewrite at a time, or
// one would put back the old bytes of another.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <tuple>

#include "headrace/io_engine.h"

namespace headrace::aio {

struct BlockName {
  IoFile::Id file;
  std::uint64_t offset = 0;
  auto key() const { return std::tuple(file.device, file.inode, offset); }
  bool operator<(const BlockName& other) const { return key() < other.key(); }
};

// Thread-safe; `granted` runs on the thread that made it possible, with no lock held. First come first
// served.
class BlockLocks {
 public:
  void acquire(const BlockName& block, std::function<void()> granted);
  void release(const BlockName& block);

 private:
  std::mutex mutex_;
  std::map<BlockName, std::deque<std::function<void()>>> waiting_;  // of the blocks that are locked
};

}  // namespace headrace::aio

// The ring's table of files: a file takes a place in it at its first use and keeps it until it is closed.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "aio/uring.h"
#include "headrace/io_engine.h"

namespace headrace::aio {

// Thread-safe, beside other calls of the ring.
class FileTable {
 public:
  explicit FileTable(Uring& ring);
  FileTable(const FileTable&) = delete;
  FileTable& operator=(const FileTable&) = delete;

  // The file's place; -1 where it has none and is named by its descriptor. `self` is this table, alive as
  // long as its ring: the file gives its place back when it is closed, if that comes first.
  int place_of(const IoFile& file, const std::shared_ptr<FileTable>& self);

 private:
  class Link;
  std::optional<std::uint32_t> take();
  void release(std::uint32_t place);

  const std::uint64_t id_;  // no other table ever has it
  Uring& ring_;
  std::mutex mutex_;
  std::vector<std::uint32_t> free_;
  std::atomic<bool> refused_{false};  // by the kernel: not asked again
};

}  // namespace headrace::aio

// A file opened for engine I/O. O_DIRECT where the file system allows it, with the alignment the file itself
// asks for (STATX_DIOALIGN); buffered with one warning where it does not.
//
// Threads: one opens and reserves; afterwards any may use it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "headrace/bytes.h"
#include "headrace/owned.h"

namespace headrace {

class IoFile {
 public:
  enum class Mode : std::uint8_t { read_only, read_write, create };  // create: emptied when it exists
  static IoFile open(const std::string& path, Mode mode, bool direct = true);
  int fd() const { return fd_.get(); }
  const std::string& path() const { return path_; }
  bool direct() const { return direct_; }
  std::uint32_t memory_alignment() const { return memory_alignment_; }  // 1 when buffered
  std::uint32_t offset_alignment() const { return offset_alignment_; }
  // The block device it lies on, and the file on it: IoFiles of one inode are one file.
  struct Id {
    std::uint64_t device = 0, inode = 0;
    bool operator==(const Id&) const = default;
  };
  Id id() const { return id_; }
  Bytes size_bytes() const;
  // Reserves the space, or throws IoError (ENOSPC) and keeps none beyond the old end; holes that were filled
  // stay so. Where the file system has no fallocate, writes zeros, or nothing without `may_write`.
  void preallocate(Bytes bytes, bool may_write = true);
  void sync_data();  // fdatasync; throws IoError

  class Links;  // what engines keep for the open file; it ends with the file
  Links* links() const { return links_.get(); }

 private:
  Fd fd_;
  std::string path_;
  Id id_;
  bool direct_ = false;
  std::uint32_t memory_alignment_ = 1, offset_alignment_ = 1;
  std::shared_ptr<Links> links_;
};

}  // namespace headrace

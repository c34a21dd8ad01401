// The journal of a store (format.h): appending commit and release records, compaction, and going back by one
// commit.
//
// A commit is flushed before append_commit returns; when it throws, the journal is as before. Where even that
// fails (the disk refuses the clean-up too) the journal is broken: what a later open would find is unknown,
// and every call throws Error.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "headrace/owned.h"
#include "swap/format.h"

namespace headrace::swap {

class Journal {
 public:
  // A new journal with its space reserved; the caller flushes the folder. Throws IoError (ENOSPC when it does
  // not fit).
  static Journal create(const std::string& directory, std::uint64_t store_id, std::uint32_t blocks);
  // Takes up a journal that was decoded as `contents`, cutting off torn bytes.
  static Journal open(const std::string& directory, std::uint64_t store_id, std::uint32_t blocks,
                      const JournalContents& contents);
  static JournalContents read(const std::string& directory, std::uint64_t store_id, std::uint32_t blocks);
  static Bytes reserved_bytes(std::size_t blocks);

  // `history` holds the commits before this one: what is kept when the journal is compacted.
  void append_commit(const CommitRecord& record, const CommitHistory& history);
  // The superseded extents may be reused from now on. Not flushed.
  void append_release(const CommitRecord& newest);
  // Durably removes the newest commit; `remaining` is the one before it.
  void drop_newest(const CommitRecord& remaining);
  void check_usable() const;

 private:
  Journal(std::string directory, std::uint64_t store_id, std::uint32_t blocks);
  void reserve();
  void compact(const CommitHistory& history);
  void restore_tail(const CommitHistory& history);

  std::string directory_, path_;
  std::uint64_t store_id_;
  std::uint32_t blocks_;
  Fd fd_;
  std::uint64_t append_offset_ = 0, newest_offset_ = 0;
  bool broken_ = false;
};

}  // namespace headrace::swap

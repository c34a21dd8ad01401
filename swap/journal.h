// One path's journal (format.h): appending commit and release records, compaction, and going back by one
// commit.
//
// A commit is flushed before append_commit returns. When it throws, take_back() brings the journal to where
// it was; where even that fails (the disk refuses the clean-up too) the journal is broken: what a later open
// would find is unknown, and every call throws Error.
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
  static Journal create(const std::string& directory, const JournalIdentity& identity);
  // Takes up a journal that was decoded as `contents`, cutting off torn bytes.
  static Journal open(const std::string& directory, const JournalIdentity& identity,
                      const JournalContents& contents);
  static JournalContents read(const std::string& directory, const JournalIdentity& identity);
  // Durably puts a journal of these commits in the place of what is there.
  static void replace(const std::string& directory, const JournalIdentity& identity, const PathsState& state,
                      const CommitHistory& history);
  static Bytes reserved_bytes(std::size_t entries);

  // `history` holds the commits before this one: what is kept when the journal is compacted.
  void append_commit(const CommitRecord& record, const CommitHistory& history);
  // After append_commit, whether it threw or not: durably removes that record; `history` is what remains.
  void take_back(const CommitHistory& history);
  // The superseded extents may be reused from now on. Not flushed.
  void append_release(const CommitRecord& newest);
  // Durably removes the newest commit; `remaining` is the one before it.
  void drop_newest(const CommitRecord& remaining);
  // Durably, in place.
  void write_paths_state(const PathsState& state);
  const PathsState& paths_state() const { return state_; }
  const JournalIdentity& identity() const { return identity_; }
  void check_usable() const;
  bool broken() const { return broken_; }
  void give_up() { broken_ = true; }
  int fd() const { return fd_.get(); }

 private:
  Journal(std::string directory, const JournalIdentity& identity);
  void reserve();
  void compact(const CommitHistory& history);
  void restore_tail(const CommitHistory& history);

  std::string directory_, path_;
  JournalIdentity identity_;
  PathsState state_;
  Fd fd_;
  std::uint64_t append_offset_ = 0, newest_offset_ = 0, before_offset_ = 0;
  bool broken_ = false;
};

}  // namespace headrace::swap

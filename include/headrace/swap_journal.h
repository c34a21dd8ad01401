// What the journal in one folder of a swap store holds, record by record; for `inspect`. Reads the file once
// and changes nothing; a run that appends meanwhile shows as torn bytes at most.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "headrace/bytes.h"

namespace headrace {

struct SwapJournalRecord {
  enum class Kind : std::uint8_t { commit, release };
  Kind kind = Kind::commit;
  std::uint64_t sequence = 0, step = 0;
  std::uint64_t offset = 0;  // in the file
  Bytes bytes = 0;           // header, table and metadata
  std::uint32_t entries = 0;
  std::uint32_t metadata_bytes = 0;
};

struct SwapJournal {
  std::string path;
  Bytes file_bytes = 0, disk_bytes = 0;         // its contents; what is taken of the disk for it
  std::vector<SwapJournalRecord> records = {};  // those that check, in the order of the file
  Bytes torn_bytes = 0;                         // after the last of them
  // Only the newest commit is whole: its predecessor's extents may have been reused.
  bool released() const;
};
// Throws IoError when the file cannot be read. Does not ask whether the journal belongs to the store:
// SwapStore::describe does.
SwapJournal read_swap_journal(const std::string& directory);

}  // namespace headrace

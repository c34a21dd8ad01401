// The on-disk format of a swap store, version 1. This comment is enough to write a reader from;
// tests/python/read_store.py is one.
//
// A store is one folder. All integers are little-endian; CRC32C is Castagnoli as in RFC 3720 ("123456789" ->
// e3069283).
//
//   store.json    what is inside; written last by create(), so a folder without it holds no store:
//                   {"crc32c":"<8 hex digits>", "format":1, "store_id":"<16 hex digits>",
//                    "durability":"step"|"none", "extent_alignment":A, "owns_directory":bool,
//                    "layout":"<text, opaque>", "blocks":[{"name":"..","bytes":n}, ...]}
//                 It begins with {"crc32c":" and the CRC32C of the file, whose 8 digits count as zeros.
//   extents.bin   preallocated. A block of n bytes has extents of L = n rounded up to A bytes: two with
//                 durability step, one with none. Copy c of block i starts at c * R + (sum of L over the
//                 blocks before i), R = sum of L over all blocks. The first n bytes are the block, the rest
//                 of the extent is zero. A block of 0 bytes has none.
//   journal.bin   durability step only: a header, then records, each starting at a multiple of 8 bytes.
//   lock          held with flock(2) by the owner; lines "pid N", "start N" (clock ticks after boot),
//                 "boot ID", "namespace TEXT", "host NAME"; empty after a clean close.
//   store.json.new, journal.bin.new   replacements not yet renamed; ignored and overwritten.
//
// Journal header, 32 bytes:
//   0  char[8] magic "HRJOURNL"    8  u32 version = 1    12 u32 number of blocks
//   16 u64 store_id as in store.json    24 u32 zero      28 u32 CRC32C of bytes 0..27
//
// Record, 40 bytes of header and a body padded with zeros to a multiple of 8:
//   0  u32 magic 0x43525248 ("HRRC")     4  u32 kind: 1 commit, 2 release
//   8  u64 sequence: 1 more than in the commit before it; a release has the sequence of its commit
//   16 u64 step                          24 u32 table entries    28 u32 metadata bytes
//   32 u32 CRC32C of the padded body     36 u32 CRC32C of bytes 0..35
//   body of a commit: one 24-byte entry a block, in the order of store.json, then the metadata (text):
//     0 u64 offset of the extent in extents.bin   8 u64 generation (0: never written)   16 u32 CRC32C of the
//     block's n bytes 20 u32 zero
//   body of a release: empty.
//
// Reading: the store's state is the last commit. The commit before it is whole too (its extents are still
// reserved), unless a release or any torn bytes follow the last commit: then its extents may have been
// reused. The first record that does not check ends the journal (a torn append) when beyond it, at any
// multiple of 8, lies neither a valid commit record nor a valid release of a larger sequence than the last
// commit's: each is written only after the commit before it is flushed. Otherwise the journal is damaged and
// must be refused. A release is not flushed, and the next commit is written over it.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "headrace/swap_journal.h"
#include "headrace/swap_store.h"
#include "swap/extent_map.h"

namespace headrace::swap {

static_assert(std::endian::native == std::endian::little, "the swap format is little-endian");

inline constexpr std::uint32_t format_version = 1;
inline constexpr const char* extents_name = "extents.bin";
inline constexpr const char* journal_name = "journal.bin";
inline constexpr const char* description_name = "store.json";
inline constexpr const char* lock_name = "lock";
inline constexpr const char* replacement_suffix = ".new";

// A committed step as the journal holds it.
struct CommitRecord {
  std::uint64_t sequence = 0;
  SwapCommit commit;
  ExtentTable table;
};

// The committed steps whose extents are reserved.
struct CommitHistory {
  std::optional<CommitRecord> superseded, newest;
};

std::vector<std::byte> encode_journal_header(std::uint64_t store_id, std::uint32_t blocks);
std::vector<std::byte> encode_commit(const CommitRecord& record);
std::vector<std::byte> encode_release(const CommitRecord& record);
// The records of a journal from its start to the first one that does not check, or to a release.
std::vector<SwapJournalRecord> list_records(std::span<const std::byte> file);
Bytes journal_header_bytes();
Bytes commit_record_bytes(std::size_t blocks, Bytes metadata_bytes);

struct JournalContents {
  CommitHistory history;
  std::uint64_t newest_offset = 0;  // where the newest commit record starts
  std::uint64_t append_offset = 0;  // where the next commit record goes
  Bytes torn_bytes = 0;             // after the last valid record
};
// Parses a whole journal; `path` is for the errors. Throws CorruptData when it belongs to another store or is
// damaged anywhere but at its end.
JournalContents decode_journal(std::span<const std::byte> file, const std::string& path,
                               std::uint64_t store_id, std::uint32_t blocks);

}  // namespace headrace::swap

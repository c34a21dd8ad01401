// The on-disk format of a swap store, version 2. This comment is enough to write a reader from;
// tests/python/read_store.py is one.
//
// A store is spread over one or more folders, its paths. All integers are little-endian; CRC32C is Castagnoli
// as in RFC 3720 ("123456789" -> e3069283). Each folder holds:
//
//   store.json    what is inside; written last by create(), so a folder without it holds no store:
//                   {"crc32c":"<8 hex digits>", "format":2|3, "store_id":"<16 hex digits>",
//                    "durability":"step"|"none", "copies":C, "extent_alignment":A, "owns_directory":bool,
//                    "paths":["<folder>", ...], "paths_revision":R, "path":P, "parity":m,
//                    "layout":"<text, opaque>", "blocks":[{"name":"..","bytes":n,"path":f}, ...]}
//                 C is there in format 3 only, which is that of stores that were made for pins.
//                 It begins with {"crc32c":" and the CRC32C of the file, whose 8 digits count as zeros. This
//                 folder is number P of paths, which names all of them as they were called when the store was
//                 made or last repaired (they may have moved since). A repair writes a new list, of a larger
//                 R, into one folder after the other: the largest R counts (0 where there is none). All but
//                 paths, R, P and owns_directory is the same in all.
//   extents.bin   preallocated: the pieces that lie on this path.
//   journal.bin   durability step only: a header, then records, each starting at a multiple of 8 bytes.
//   pin-NAME.bin  durability step only: a commit that is kept as NAME; written like a journal of that commit
//                 and nothing else, whose state of the paths means nothing.
//   lock          held with flock(2) by the owner; lines "pid N", "start N" (clock ticks after boot),
//                 "boot ID", "namespace TEXT", "host NAME"; empty after a clean close.
//   store.json.new, journal.bin.new, pin-NAME.bin.new   replacements not yet renamed; ignored and
//                 overwritten or removed.
//
// Pieces. Without parity (m = 0) a block of n bytes is one piece of n rounded up to A bytes, on path f. With
// parity and N paths it is a stripe of N pieces, k = N - m of data and m of parity, each of
// L = (n rounded up to k * A) / k bytes: data piece i is bytes [i * L, (i + 1) * L) of the block followed by
// zeros; parity piece j is, byte by byte, the sum over i of C[k + j][i] * data[i] in GF(2^8) with the
// polynomial 0x11d, C[r][i] = 1 / (r xor i) (Cauchy). Piece i (data first) lies on path (f + i) mod N.
// A piece has C extents of L bytes: with durability step two and one more for each pin that the store was
// made for, with none one. Copy c of it starts at c * R + S of its path's extents.bin, S = sum of L over the
// pieces of blocks before it on that path, R = sum of L over all pieces on that path. A block of 0 bytes has
// pieces of 0 bytes.
//
// Journal header, 1536 bytes, zero where nothing is said:
//   0  char[8] magic "HRJOURNL"    8  u32 version = 2    12 u32 entries of a table
//   16 u64 store_id as in store.json    24 u32 path P    28 u32 CRC32C of bytes 0..27
//   512 and 1024: a state of the paths each, of which the larger epoch (that checks) counts:
//     0 u64 epoch    8 u64 lost: bit p is set when path p was lost    16 u32 zero  20 u32 CRC32C of bytes
//     0..19. Epoch e is written to offset 512 + 512 * (e mod 2).
//
// Record, 40 bytes of header and a body padded with zeros to a multiple of 8:
//   0  u32 magic 0x43525248 ("HRRC")     4  u32 kind: 1 commit, 2 release
//   8  u64 sequence: 1 more than in the commit before it; a release has the sequence of its commit
//   16 u64 step                          24 u32 table entries    28 u32 metadata bytes
//   32 u32 CRC32C of the padded body     36 u32 CRC32C of bytes 0..35
//   body of a commit: one 24-byte entry a piece, block after block in the order of store.json, then the
//     metadata (text):
//     0 u64 offset of the extent in its path's extents.bin   8 u64 generation of the block (0: never written)
//     16 u32 CRC32C of the piece: of its L bytes with parity, of the block's n bytes without
//     20 u32 path
//   body of a release: empty.
//
// Reading one journal: its state is the last commit. The commit before it is whole too (its extents are still
// reserved), unless a release or any torn bytes follow the last commit: then its extents may have been
// reused. The first record that does not check ends the journal (a torn append) when beyond it, at any
// multiple of 8, lies neither a valid commit record nor a valid release of a larger sequence than the last
// commit's: each is written only after the commit before it is flushed. Otherwise the journal is damaged and
// must be refused. A release is not flushed, and the next commit is written over it.
//
// Reading a store: of the states of all paths the one of the largest epoch counts; of two different ones of
// that epoch the one that more journals hold, then the one beside the larger sequence. Paths that it calls
// lost are stale, whatever their journals say. Of the others the journal with the largest sequence counts;
// others may lack its last commit. A journal two commits behind, or with another record of the same sequence
// than more of the others, is stale too. The commit before it is whole when none of those that have the last
// one has a release or torn bytes behind it. Up to m paths may be missing, stale or damaged. A commit is
// pinned when any path that is none of these has a file of the pin that checks; of several of one name the
// one of the largest sequence counts.
//
// [Note: one commit in several journals]
// A commit waits for the step's writes, flushes extents.bin on every living path, and only then appends its
// record to the journals, one after the other, each flushed. So a valid record in any one journal proves that
// every piece of its step is durable, and a kill between two appends leaves two true answers: the step, and
// the one before it, whose extents are not reused before every journal has the record. open() takes the
// newer one and appends its record where it is missing. Going back (drop) removes a record from one journal
// after the other, and nothing is written to extents before the last: a kill in between leaves the newer
// step, whole. The same holds for a commit that fails half way and is taken back.
//   That a journal is never consulted which missed such a removal is what the epoch is for. A path is lost
// when a call on it fails, or its files are gone. Before any record is appended or removed the survivors
// note, in place and flushed, a new epoch in which it is lost; a kill between two of these notes leaves some
// survivors with the older epoch, which the newer one still counts among them. Every open without some path
// notes one. A lost path that comes back
// may hold a commit that was taken back after it was lost, or lack later ones: by the epoch it is not asked.
// The other way round, records in which the lost path's pieces are missing are all written after the note.
// With more than m paths lost nothing is noted and nothing more is written: whatever made them vanish, the
// paths are still one store when they are back.
//   Two sets of paths that have none in common could each go on without the other. So a store of which half
// the paths or more are not good is opened for writing only when the state already calls exactly those lost:
// then the others were told by nobody else since. Of any two sets of more than half, one path is in both, and
// knows. Paths given up for good are replaced by repair().
//   repair() first tells the other paths where a lost one is to lie from now on. Then it writes the lost
// path's pieces and store.json, flushed, then its journal, by rename, with the newest commit and the state of
// the others, in which it is lost. Then all note a new epoch in which it is not: the first note is the moment
// it belongs to the store again. Before it the path is stale, after it whole.
//
// [Note: pins in several folders]
// A pin is of a commit whose data is flushed, and none of its extents is free before the pin is made. So its
// file in any one folder is the truth, and a kill between two folders leaves two true answers: the pin, which
// the next open() completes, or none. A pin that is given up is removed from one folder after the other, and
// its extents are not reused before it is gone, flushed, from the last: a kill in between leaves it, whole,
// and open() puts it back where it is missing. A folder that missed a removal is that of a path which was
// lost before, noted by an epoch as above, and is not asked; repair() makes it agree with the others. open()
// flushes every folder before anything is written: a removal that it saw may not be durable yet. A file that
// does not check, in a folder without which no other has the pin, keeps nothing: open() says so and removes
// it. After a folder could not be flushed, a name in it may be there or not whatever is done next, and a
// commit could count on neither: the store stops, and whoever opens it takes what is found.
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
#include "swap/stripe_map.h"

namespace headrace::swap {

static_assert(std::endian::native == std::endian::little, "the swap format is little-endian");

inline constexpr std::uint32_t format_version = 2;            // of journals, and of stores
inline constexpr std::uint32_t format_version_with_pins = 3;  // of stores that were made for pins
inline constexpr const char* extents_name = "extents.bin";
inline constexpr const char* journal_name = "journal.bin";
inline constexpr const char* description_name = "store.json";
inline constexpr const char* lock_name = "lock";

// A committed step as the journal holds it.
struct CommitRecord {
  std::uint64_t sequence = 0;
  SwapCommit commit;
  ExtentTable table;
  bool operator==(const CommitRecord& other) const {
    return sequence == other.sequence && commit.step == other.commit.step &&
           commit.metadata == other.commit.metadata && table == other.table;
  }
};

// The committed steps whose extents are reserved.
struct CommitHistory {
  std::optional<CommitRecord> superseded, newest;
};

// Which paths the store goes on without, and since when: a larger epoch is newer.
struct PathsState {
  std::uint64_t epoch = 1;
  std::uint64_t lost = 0;  // bit p: path p
  bool is_lost(std::uint32_t path) const { return (lost >> path & 1) != 0; }
  bool operator==(const PathsState&) const = default;
};

// Whose journal it is.
struct JournalIdentity {
  std::uint64_t store_id = 0;
  std::uint32_t entries = 0;  // of a table
  std::uint32_t path = 0;
};

std::vector<std::byte> encode_journal_header(const JournalIdentity& identity, const PathsState& state);
std::vector<std::byte> encode_paths_state(const PathsState& state);  // for paths_state_offset
std::uint64_t paths_state_offset(const PathsState& state);
std::vector<std::byte> encode_commit(const CommitRecord& record);
std::vector<std::byte> encode_release(const CommitRecord& record);
// The records of a journal from its start to the first one that does not check, or to a release.
std::vector<SwapJournalRecord> list_records(std::span<const std::byte> file);
Bytes journal_header_bytes();
// Empty when it is not the beginning of a journal.
std::optional<std::uint64_t> store_of_journal(std::span<const std::byte> file);
Bytes commit_record_bytes(std::size_t entries, Bytes metadata_bytes);

struct JournalContents {
  PathsState state;
  CommitHistory history;
  std::uint64_t newest_offset = 0;  // where the newest commit record starts
  std::uint64_t append_offset = 0;  // where the next commit record goes
  Bytes torn_bytes = 0;             // after the last valid record
  bool released = false;            // a release or torn bytes follow the newest commit
};
// Parses a whole journal; `path` is for the errors. Throws CorruptData when it belongs to another store or is
// damaged anywhere but at its end.
JournalContents decode_journal(std::span<const std::byte> file, const std::string& path,
                               const JournalIdentity& identity);

}  // namespace headrace::swap

#include "swap/journal.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>

#include "headrace/errors.h"
#include "headrace/log.h"
#include "swap/files.h"

namespace headrace::swap {
namespace {

constexpr Bytes least_limit_bytes = 64 << 10;
constexpr Bytes records_before_compaction = 16;
constexpr Bytes usual_metadata_bytes = 1024;

Bytes limit_bytes(Bytes record_bytes) {
  return std::max(least_limit_bytes, journal_header_bytes() + records_before_compaction * record_bytes);
}

}  // namespace

Journal::Journal(std::string directory, std::uint64_t store_id, std::uint32_t blocks)
    : directory_(std::move(directory)),
      path_(join(directory_, journal_name)),
      store_id_(store_id),
      blocks_(blocks) {}

Bytes Journal::reserved_bytes(std::size_t blocks) {
  return round_up(limit_bytes(commit_record_bytes(blocks, usual_metadata_bytes)), default_extent_alignment);
}

// Space for every record up to the compaction, so that a full disk is met at the start. The size stays that
// of the contents.
void Journal::reserve() {
  if (::fallocate(fd_.get(), FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(reserved_bytes(blocks_))) != 0 &&
      errno != EOPNOTSUPP)
    throw IoError("reserve", path_, 0, reserved_bytes(blocks_), errno);
}

Journal Journal::create(const std::string& directory, std::uint64_t store_id, std::uint32_t blocks) {
  Journal journal(directory, store_id, blocks);
  journal.fd_ = open_file(journal.path_, O_RDWR | O_CREAT | O_TRUNC);
  journal.reserve();
  write_at(journal.fd_.get(), journal.path_, 0, encode_journal_header(store_id, blocks));
  sync_file(journal.fd_.get(), journal.path_);
  journal.append_offset_ = journal.newest_offset_ = journal_header_bytes();
  return journal;
}

JournalContents Journal::read(const std::string& directory, std::uint64_t store_id, std::uint32_t blocks) {
  const std::string path = join(directory, journal_name);
  return decode_journal(read_file(path), path, store_id, blocks);
}

Journal Journal::open(const std::string& directory, std::uint64_t store_id, std::uint32_t blocks,
                      const JournalContents& contents) {
  Journal journal(directory, store_id, blocks);
  journal.fd_ = open_file(journal.path_, O_RDWR);
  journal.append_offset_ = contents.append_offset;
  journal.newest_offset_ = contents.newest_offset;
  if (contents.torn_bytes > 0) journal.restore_tail(contents.history);
  return journal;
}

void Journal::check_usable() const {
  if (broken_)
    throw Error(
        fmt::format("{} could not be brought back to its last commit after a failed write, so nothing more "
                    "is written to this swap store. Check the disk, then resume from the last commit.",
                    path_));
}

// Cuts everything after the newest commit, durably. When its predecessor is given up, a release takes the
// place of what is cut before the file is shortened: at no moment do the two look like a pair. A throw leaves
// the journal broken.
void Journal::restore_tail(const CommitHistory& history) {
  broken_ = true;
  std::uint64_t end = append_offset_;
  if (history.newest && !history.superseded) {
    const std::vector<std::byte> release = encode_release(*history.newest);
    write_at(fd_.get(), path_, end, release);
    end += release.size();
  }
  truncate_file(fd_.get(), path_, end);
  sync_file(fd_.get(), path_);
  broken_ = false;
}

void Journal::append_commit(const CommitRecord& record, const CommitHistory& history) {
  check_usable();
  const std::vector<std::byte> bytes = encode_commit(record);
  if (history.newest && append_offset_ + bytes.size() > limit_bytes(bytes.size())) compact(history);
  try {
    write_at(fd_.get(), path_, append_offset_, bytes);
    sync_file(fd_.get(), path_);
  } catch (const IoError&) {
    try {
      restore_tail(history);
    } catch (const IoError& second) {
      log_warning(second.what());
    }
    throw;
  }
  newest_offset_ = append_offset_;
  append_offset_ += bytes.size();
}

void Journal::append_release(const CommitRecord& newest) {
  check_usable();
  write_at(fd_.get(), path_, append_offset_, encode_release(newest));
}

void Journal::drop_newest(const CommitRecord& remaining) {
  check_usable();
  append_offset_ = newest_offset_;
  restore_tail({std::nullopt, remaining});
}

// A new journal of the commits that are still whole takes the place of this one. When there is no room to
// write it, the old one simply grows on.
void Journal::compact(const CommitHistory& history) {
  std::vector<std::byte> contents = encode_journal_header(store_id_, blocks_);
  const auto append = [&](const CommitRecord& record) {
    newest_offset_ = contents.size();
    const std::vector<std::byte> bytes = encode_commit(record);
    contents.insert(contents.end(), bytes.begin(), bytes.end());
  };
  const std::uint64_t newest_before = newest_offset_;
  if (history.superseded) append(*history.superseded);
  append(*history.newest);
  try {
    prepare_replacement(directory_, journal_name, contents);
  } catch (const IoError& error) {
    newest_offset_ = newest_before;
    warn_once(path_, fmt::format("the swap journal keeps growing: {}", error.what()));
    return;
  }
  broken_ = true;  // until the new file is known to be the one that a later open finds
  publish_replacement(directory_, journal_name);
  fd_ = open_file(path_, O_RDWR);
  broken_ = false;
  append_offset_ = contents.size();
  try {
    reserve();
  } catch (const IoError& error) {
    warn_once(path_, fmt::format("no room is reserved for the swap journal: {}", error.what()));
  }
}

}  // namespace headrace::swap

#include "swap/journal.h"

#include <fcntl.h>

#include <algorithm>

#include "headrace/errors.h"
#include "headrace/files.h"
#include "headrace/log.h"

namespace headrace::swap {
using namespace files;
namespace {

constexpr Bytes least_limit_bytes = 64 << 10;
constexpr Bytes records_before_compaction = 16;
constexpr Bytes usual_metadata_bytes = 1024;

Bytes limit_bytes(Bytes record_bytes) {
  return std::max(least_limit_bytes, journal_header_bytes() + records_before_compaction * record_bytes);
}

struct Encoded {
  std::vector<std::byte> bytes;
  std::uint64_t newest_offset = 0;
};

// A journal of these commits and nothing else.
Encoded encode_journal(const JournalIdentity& identity, const PathsState& state,
                       const CommitHistory& history) {
  Encoded journal{encode_journal_header(identity, state), journal_header_bytes()};
  for (const auto* record : {&history.superseded, &history.newest}) {
    if (!*record) continue;
    journal.newest_offset = journal.bytes.size();
    const std::vector<std::byte> bytes = encode_commit(**record);
    journal.bytes.insert(journal.bytes.end(), bytes.begin(), bytes.end());
  }
  return journal;
}

}  // namespace

Journal::Journal(std::string directory, const JournalIdentity& identity)
    : directory_(std::move(directory)), path_(join(directory_, journal_name)), identity_(identity) {}

Bytes Journal::reserved_bytes(std::size_t entries) {
  return round_up(limit_bytes(commit_record_bytes(entries, usual_metadata_bytes)), default_extent_alignment);
}

// Space for every record up to the compaction, so that a full disk is met at the start.
void Journal::reserve() {
  reserve_file(fd_.get(), path_, reserved_bytes(identity_.entries));
}

Journal Journal::create(const std::string& directory, const JournalIdentity& identity) {
  Journal journal(directory, identity);
  journal.fd_ = open_file(journal.path_, O_RDWR | O_CREAT | O_TRUNC);
  journal.reserve();
  write_at(journal.fd_.get(), journal.path_, 0, encode_journal_header(identity, {}));
  sync_file(journal.fd_.get(), journal.path_);
  journal.append_offset_ = journal.newest_offset_ = journal_header_bytes();
  return journal;
}

JournalContents Journal::read(const std::string& directory, const JournalIdentity& identity) {
  const std::string path = join(directory, journal_name);
  return decode_journal(read_file(path), path, identity);
}

Journal Journal::open(const std::string& directory, const JournalIdentity& identity,
                      const JournalContents& contents) {
  Journal journal(directory, identity);
  journal.fd_ = open_file(journal.path_, O_RDWR);
  journal.state_ = contents.state;
  journal.append_offset_ = contents.append_offset;
  journal.newest_offset_ = contents.newest_offset;
  if (contents.torn_bytes > 0)
    journal.restore_tail(contents.history);
  else  // a process killed before its last flush leaves a record that is read, and not yet durable
    sync_file(journal.fd_.get(), journal.path_);
  return journal;
}

void Journal::replace(const std::string& directory, const JournalIdentity& identity, const PathsState& state,
                      const CommitHistory& history) {
  prepare_replacement(directory, journal_name, encode_journal(identity, state, history).bytes);
  publish_replacement(directory, journal_name);
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
  before_offset_ = newest_offset_;
  newest_offset_ = append_offset_;
  append_offset_ += bytes.size();
  write_at(fd_.get(), path_, newest_offset_, bytes);
  sync_file(fd_.get(), path_);
}

void Journal::take_back(const CommitHistory& history) {
  check_usable();
  append_offset_ = newest_offset_;
  newest_offset_ = before_offset_;
  restore_tail(history);
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

void Journal::write_paths_state(const PathsState& state) {
  check_usable();
  write_at(fd_.get(), path_, paths_state_offset(state), encode_paths_state(state));
  sync_file(fd_.get(), path_);
  state_ = state;
}

// A new journal of the commits that are still whole takes the place of this one. When there is no room to
// write it, the old one simply grows on.
void Journal::compact(const CommitHistory& history) {
  const Encoded journal = encode_journal(identity_, state_, history);
  try {
    prepare_replacement(directory_, journal_name, journal.bytes);
  } catch (const IoError& error) {
    warn_once(path_, fmt::format("the swap journal keeps growing: {}", error.what()));
    return;
  }
  broken_ = true;  // until the new file is known to be the one that a later open finds
  publish_replacement(directory_, journal_name);
  fd_ = open_file(path_, O_RDWR);
  broken_ = false;
  newest_offset_ = journal.newest_offset;
  append_offset_ = journal.bytes.size();
  try {
    reserve();
  } catch (const IoError& error) {
    warn_once(path_, fmt::format("no room is reserved for the swap journal: {}", error.what()));
  }
}

}  // namespace headrace::swap

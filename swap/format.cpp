#include "swap/format.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "headrace/bytes.h"
#include "headrace/errors.h"

namespace headrace::swap {
namespace {

constexpr std::array<char, 8> journal_magic = {'H', 'R', 'J', 'O', 'U', 'R', 'N', 'L'};
constexpr std::uint32_t record_magic = 0x43525248;
constexpr std::uint64_t record_alignment = 8;

enum class RecordKind : std::uint32_t { commit = 1, release = 2 };

struct JournalHeader {
  std::array<char, 8> magic = journal_magic;
  std::uint32_t version = format_version;
  std::uint32_t entries = 0;
  std::uint64_t store_id = 0;
  std::uint32_t path = 0;
  std::uint32_t crc = 0;
};
static_assert(sizeof(JournalHeader) == 32);

// Each in a sector of its own, so that a torn write leaves the other one.
constexpr Bytes sector_bytes = 512;
constexpr std::uint64_t states = 2;
constexpr Bytes header_bytes = (1 + states) * sector_bytes;

struct StoredState {
  std::uint64_t epoch = 0;
  std::uint64_t lost = 0;
  std::uint32_t zero = 0;
  std::uint32_t crc = 0;
};
static_assert(sizeof(StoredState) == 24);

struct RecordHeader {
  std::uint32_t magic = record_magic;
  RecordKind kind = RecordKind::commit;
  std::uint64_t sequence = 0;
  std::uint64_t step = 0;
  std::uint32_t entries = 0;
  std::uint32_t metadata_bytes = 0;
  std::uint32_t body_crc = 0;
  std::uint32_t crc = 0;
};
static_assert(sizeof(RecordHeader) == 40);

struct TableEntry {
  std::uint64_t offset = 0;
  std::uint64_t generation = 0;
  std::uint32_t crc = 0;
  std::uint32_t path = 0;
};
static_assert(sizeof(TableEntry) == 24);

// The CRC of a header is its last field and covers all before it.
template <class Header>
std::uint32_t header_crc(const Header& header) {
  return crc32c(std::as_bytes(std::span(&header, 1)).first(sizeof(Header) - sizeof(header.crc)));
}

Bytes body_bytes(std::uint64_t entries, std::uint64_t metadata_bytes) {
  return round_up(entries * sizeof(TableEntry) + metadata_bytes, record_alignment);
}

struct RecordView {
  RecordHeader header;
  std::span<const std::byte> body;
  Bytes bytes() const { return sizeof(RecordHeader) + body.size(); }
};

// The record at `offset` if every byte of it checks.
std::optional<RecordView> record_at(std::span<const std::byte> file, std::uint64_t offset) {
  if (offset > file.size() || file.size() - offset < sizeof(RecordHeader)) return std::nullopt;
  RecordView record;
  std::memcpy(&record.header, file.data() + offset, sizeof(RecordHeader));
  if (record.header.magic != record_magic || record.header.crc != header_crc(record.header))
    return std::nullopt;
  const Bytes bytes = body_bytes(record.header.entries, record.header.metadata_bytes);
  const std::span<const std::byte> rest = file.subspan(offset + sizeof(RecordHeader));
  if (rest.size() < bytes) return std::nullopt;
  record.body = rest.first(bytes);
  if (crc32c(record.body) != record.header.body_crc) return std::nullopt;
  return record;
}

// A record that proves that the one at `offset` was once whole: a later commit, or the release of a commit
// that is not among those read. Both are written only after it was flushed.
bool proof_lies_beyond(std::span<const std::byte> file, std::uint64_t offset, std::uint64_t newest_sequence) {
  for (std::uint64_t at = round_up(offset + 1, record_alignment); at + sizeof(RecordHeader) <= file.size();
       at += record_alignment) {
    const std::optional<RecordView> record = record_at(file, at);
    if (record && (record->header.kind == RecordKind::commit || record->header.sequence > newest_sequence))
      return true;
  }
  return false;
}

CommitRecord decode_commit(const RecordView& record) {
  CommitRecord commit;
  commit.sequence = record.header.sequence;
  commit.commit.step = record.header.step;
  commit.table.resize(record.header.entries);
  const std::byte* position = record.body.data();
  for (ExtentEntry& entry : commit.table) {
    TableEntry stored;
    std::memcpy(&stored, position, sizeof(stored));
    entry = {stored.offset, stored.generation, stored.crc, stored.path};
    position += sizeof(stored);
  }
  commit.commit.metadata.assign(reinterpret_cast<const char*>(position), record.header.metadata_bytes);
  return commit;
}

void check_journal_header(std::span<const std::byte> file, const std::string& path,
                          const JournalIdentity& identity) {
  JournalHeader header;
  if (file.size() < header_bytes)
    throw CorruptData(
        fmt::format("{} is cut short: {} bytes, its header alone has {}.", path, file.size(), header_bytes));
  std::memcpy(&header, file.data(), sizeof(header));
  if (header.magic != journal_magic || header.crc != header_crc(header))
    throw CorruptData(fmt::format("{} is damaged at offset 0: its header does not check.", path));
  if (header.version != format_version)
    throw UsageError(fmt::format("{} has format version {}; this program reads version {}.", path,
                                 header.version, format_version));
  if (header.store_id != identity.store_id || header.entries != identity.entries ||
      header.path != identity.path)
    throw CorruptData(
        fmt::format("{} belongs to another store or another path: it has id {:016x}, {} entries and path {}; "
                    "{} beside it has id {:016x}, {} entries and path {}.",
                    path, header.store_id, header.entries, header.path, description_name, identity.store_id,
                    identity.entries, identity.path));
}

PathsState decode_paths_state(std::span<const std::byte> file, const std::string& path) {
  std::optional<PathsState> newest;
  for (std::uint64_t slot = 0; slot < states; ++slot) {
    StoredState stored;
    std::memcpy(&stored, file.data() + (1 + slot) * sector_bytes, sizeof(stored));
    if (stored.crc != header_crc(stored) || stored.epoch % states != slot || stored.epoch == 0) continue;
    if (!newest || stored.epoch > newest->epoch) newest = PathsState{stored.epoch, stored.lost};
  }
  if (!newest)
    throw CorruptData(fmt::format("{} is damaged: no state of the paths in its header checks.", path));
  return *newest;
}

void append(std::vector<std::byte>& out, const void* data, std::size_t bytes) {
  const std::size_t end = out.size();
  out.resize(end + bytes);
  if (bytes > 0) std::memcpy(out.data() + end, data, bytes);
}

std::vector<std::byte> encode_record(RecordHeader header, std::span<const std::byte> body) {
  header.body_crc = crc32c(body);
  header.crc = header_crc(header);
  std::vector<std::byte> out;
  append(out, &header, sizeof(header));
  append(out, body.data(), body.size());
  return out;
}

}  // namespace

std::vector<std::byte> encode_journal_header(const JournalIdentity& identity, const PathsState& state) {
  JournalHeader header;
  header.entries = identity.entries;
  header.store_id = identity.store_id;
  header.path = identity.path;
  header.crc = header_crc(header);
  std::vector<std::byte> out(header_bytes);
  std::memcpy(out.data(), &header, sizeof(header));
  const std::vector<std::byte> stored = encode_paths_state(state);
  std::copy(stored.begin(), stored.end(),
            out.begin() + static_cast<std::ptrdiff_t>(paths_state_offset(state)));
  return out;
}

std::vector<std::byte> encode_paths_state(const PathsState& state) {
  StoredState stored{state.epoch, state.lost, 0, 0};
  stored.crc = header_crc(stored);
  std::vector<std::byte> out;
  append(out, &stored, sizeof(stored));
  return out;
}

std::uint64_t paths_state_offset(const PathsState& state) {
  return (1 + state.epoch % states) * sector_bytes;
}

std::vector<std::byte> encode_commit(const CommitRecord& record) {
  const std::string& metadata = record.commit.metadata;
  HEADRACE_CHECK(metadata.size() <= UINT32_MAX, "metadata of a commit has {} bytes", metadata.size());
  std::vector<std::byte> body;
  body.reserve(body_bytes(record.table.size(), metadata.size()));
  for (const ExtentEntry& entry : record.table) {
    const TableEntry stored{entry.offset, entry.generation, entry.crc32c, entry.path};
    append(body, &stored, sizeof(stored));
  }
  append(body, metadata.data(), metadata.size());
  body.resize(round_up(body.size(), record_alignment));

  RecordHeader header;
  header.sequence = record.sequence;
  header.step = record.commit.step;
  header.entries = static_cast<std::uint32_t>(record.table.size());
  header.metadata_bytes = static_cast<std::uint32_t>(metadata.size());
  return encode_record(header, body);
}

std::vector<SwapJournalRecord> list_records(std::span<const std::byte> file) {
  using Kind = SwapJournalRecord::Kind;
  std::vector<SwapJournalRecord> records;
  std::uint64_t offset = journal_header_bytes();
  while (const std::optional<RecordView> record = record_at(file, offset)) {
    const RecordHeader& header = record->header;
    records.push_back({.kind = header.kind == RecordKind::commit ? Kind::commit : Kind::release,
                       .sequence = header.sequence,
                       .step = header.step,
                       .offset = offset,
                       .bytes = record->bytes(),
                       .entries = header.entries,
                       .metadata_bytes = header.metadata_bytes});
    if (header.kind == RecordKind::release) break;  // nothing valid follows it
    offset += record->bytes();
  }
  return records;
}

std::vector<std::byte> encode_release(const CommitRecord& record) {
  RecordHeader header;
  header.kind = RecordKind::release;
  header.sequence = record.sequence;
  header.step = record.commit.step;
  return encode_record(header, {});
}

Bytes journal_header_bytes() {
  return header_bytes;
}

Bytes commit_record_bytes(std::size_t entries, Bytes metadata_bytes) {
  return sizeof(RecordHeader) + body_bytes(entries, metadata_bytes);
}

std::optional<std::uint64_t> store_of_journal(std::span<const std::byte> file) {
  JournalHeader header;
  if (file.size() < sizeof(header)) return {};
  std::memcpy(&header, file.data(), sizeof(header));
  if (header.magic != journal_magic || header.crc != header_crc(header)) return {};
  return header.store_id;
}

JournalContents decode_journal(std::span<const std::byte> file, const std::string& path,
                               const JournalIdentity& identity) {
  check_journal_header(file, path, identity);
  JournalContents contents;
  contents.state = decode_paths_state(file, path);
  std::uint64_t offset = header_bytes;
  contents.append_offset = offset;
  while (const std::optional<RecordView> record = record_at(file, offset)) {
    const RecordHeader& header = record->header;
    std::optional<CommitRecord>& newest = contents.history.newest;
    if (header.kind == RecordKind::release) {
      contents.released = true;
      offset += record->bytes();
      break;  // the next commit overwrites a release, so nothing valid follows it
    }
    if (header.entries != identity.entries || (newest && header.sequence != newest->sequence + 1))
      throw CorruptData(fmt::format(
          "{} is damaged at offset {}: commit {} with {} entries follows commit {}, and "
          "there should be {}. The steps after it cannot be trusted.",
          path, offset, header.sequence, header.entries, newest ? newest->sequence : 0, identity.entries));
    contents.history.superseded = std::move(newest);
    newest = decode_commit(*record);
    contents.newest_offset = offset;
    offset += record->bytes();
    contents.append_offset = offset;
  }
  const auto& newest = contents.history.newest;
  if (proof_lies_beyond(file, offset, newest ? newest->sequence : 0))
    throw CorruptData(
        fmt::format("{} is damaged in the middle, at offset {}: the record there does not check, and "
                    "a later one does.",
                    path, offset));
  contents.torn_bytes = file.size() - offset;
  if (contents.torn_bytes > 0) contents.released = true;
  if (contents.released) contents.history.superseded.reset();
  return contents;
}

}  // namespace headrace::swap

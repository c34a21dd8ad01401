#include "src/checkpoint/parity.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>
#include <optional>
#include <utility>
#include <vector>

#include "headrace/checkpoint.h"
#include "headrace/errors.h"
#include "headrace/files.h"
#include "headrace/parity_code.h"
#include "src/checkpoint/agreement.h"
#include "src/checkpoint/part_sums.h"
#include "src/checkpoint/stored_arrays.h"

namespace headrace {
namespace {

constexpr std::string_view label = "parity of a checkpoint";
constexpr std::size_t buffers = 2;  // one is read or written while the other is worked on

Bytes longest_file(const Manifest& manifest) {
  Bytes longest = 0;
  for (const ManifestFile& one : manifest.files) longest = std::max(longest, one.bytes);
  return longest;
}

// As much as fits into the memory that rebuilding has.
Bytes stripe_bytes_of(std::size_t files) {
  constexpr Bytes most = Bytes{1} << 20;
  return std::min(most, checkpoint_rebuild_bytes / files / parity_alignment * parity_alignment);
}

class ParityWriter {
 public:
  explicit ParityWriter(const ParityWork& work)
      : work_(work),
        ranks_(work.manifest.files.size()),
        rank_(static_cast<std::uint32_t>(work.communicator.rank())),
        groups_(divide_up(work.rows, ranks_)),
        file_(work.manifest.files[rank_]),
        length_(longest_file(work.manifest)),
        stripe_bytes_(stripe_bytes_of(ranks_ + work.rows)),
        code_(static_cast<std::uint32_t>(ranks_), work.rows) {
    deal_memory();
    round_bytes_ = chunk_bytes_ * ranks_;
  }

  ManifestParity run() {
    guarded([&] { open(); });
    guarded([&] { submit_read(0); });
    const std::uint64_t rounds = divide_up(length_, round_bytes_);
    for (std::uint64_t round = 0; round < rounds; ++round) {
      take_own(round);
      guarded([&] {
        if (round + 1 < rounds) submit_read(round + 1);
      });
      exchange_chunks(round);
      if (failure_ == nullptr) encode();
      for (std::size_t group = 0; group < groups_; ++group) exchange_row(round, group);
    }
    guarded([&] { finish(); });
    ManifestParity parity = gather();
    if (failure_ != nullptr) std::rethrow_exception(failure_);
    return parity;
  }

 private:
  struct Transfer {
    IoTicket ticket;
    std::uint64_t offset = 0;
    Bytes bytes = 0;
  };
  struct Row {
    IoFile file;
    PartSums sums;
    std::array<Transfer, buffers> writes = {};
  };

  // A rank that has failed goes on exchanging, so that the others come to an end; what it sends is not used.
  template <class Action>
  void guarded(const Action& action) {
    if (failure_ != nullptr) return;
    try {
      action();
    } catch (const Error&) {
      failure_ = std::current_exception();
    }
  }

  void deal_memory() {
    const std::size_t chunks = buffers * ranks_ + ranks_ + work_.rows + buffers * groups_ * ranks_;
    const Bytes fit = work_.memory.size() / chunks / parity_alignment * parity_alignment;
    HEADRACE_CHECK(fit > 0, "no memory for parity {} over {} ranks", work_.rows, ranks_);
    chunk_bytes_ = std::min(fit, round_up(divide_up(length_, ranks_), parity_alignment));
    std::span<std::byte> rest = work_.memory;
    const auto take = [&](std::size_t count) {
      const std::span<std::byte> taken = rest.first(count * chunk_bytes_);
      rest = rest.subspan(taken.size());
      return taken;
    };
    for (std::span<std::byte>& buffer : own_) buffer = take(ranks_);
    chunks_ = take(ranks_);
    sums_ = take(work_.rows);
    for (auto& buffer : rows_memory_)
      for (std::size_t group = 0; group < groups_; ++group) buffer.push_back(take(ranks_));
  }

  PartSums stripe_sums(Bytes file_bytes, std::vector<std::uint32_t>& sums) const {
    return {[bytes = stripe_bytes_, file_bytes](std::uint64_t stripe) {
              return std::min(bytes, file_bytes - stripe * bytes);
            },
            [&sums](std::uint64_t, std::uint32_t crc32c) { sums.push_back(crc32c); }};
  }

  // The parts that were checksummed while they were written: the header, then the slices.
  PartSums written_parts() {
    const std::vector<StoredArray> arrays = stored_arrays(work_.manifest.states);
    parts_ = {{file_.header_bytes, file_.header_crc32c}};
    for (const ManifestSlice& slice : work_.manifest.slices)
      if (slice.file == rank_) parts_.emplace_back(arrays[slice.array].bytes_of(slice.numel), slice.crc32c);
    return {[this](std::uint64_t part) { return parts_.at(part).first; },
            [this](std::uint64_t part, std::uint32_t crc32c) {
              if (crc32c == parts_[part].second) return;
              throw CorruptData(
                  fmt::format("{} reads back otherwise than it was written: the drive, or what lies between, "
                              "changes bytes. Run `headrace doctor`, and save on another drive.",
                              own_file_->path()));
            }};
  }

  void open() {
    own_file_.emplace(IoFile::open(files::join(work_.folder, file_.name), IoFile::Mode::read_only));
    own_stripes_.emplace(stripe_sums(file_.bytes, own_sums_));
    own_parts_.emplace(written_parts());
    row_sums_.resize(groups_);
    for (std::size_t group = 0; group < groups_; ++group) {
      const std::uint64_t row = group * ranks_ + rank_;
      if (row >= work_.rows) break;
      const std::string name = parity_file_name(static_cast<std::uint32_t>(row), work_.rows);
      rows_.push_back({IoFile::open(files::join(work_.folder, name), IoFile::Mode::create),
                       stripe_sums(length_, row_sums_[group])});
      rows_.back().file.preallocate(length_);
    }
  }

  // Of the range of a round as much as the file has.
  Bytes bytes_in(std::uint64_t round, Bytes file_bytes) const {
    const std::uint64_t begin = round * round_bytes_;
    return begin < file_bytes ? std::min(round_bytes_, file_bytes - begin) : 0;
  }

  void submit_read(std::uint64_t round) {
    const Bytes bytes = bytes_in(round, file_.bytes);
    if (bytes == 0) return;
    const std::uint64_t begin = round * round_bytes_;
    read_ = {work_.io.submit(IoDirection::read, *own_file_, begin, HostLease::borrowed(own_[round % buffers]),
                             bytes),
             begin, bytes};
  }

  static void settle(Transfer& transfer, std::string_view operation, const IoFile& file) {
    if (!transfer.ticket) return;
    if (const IoResult result = transfer.ticket.wait(); !result.ok())
      throw IoError(operation, file.path(), transfer.offset + result.bytes, transfer.bytes - result.bytes,
                    result.code);
  }

  // After a failure too the buffer is free at the end.
  void take_own(std::uint64_t round) {
    Transfer read = std::exchange(read_, {});
    guarded([&] {
      settle(read, "read", *own_file_);
      const Bytes bytes = bytes_in(round, file_.bytes);
      const std::span<std::byte> buffer = own_[round % buffers];
      std::memset(buffer.data() + bytes, 0, buffer.size() - bytes);
      own_parts_->add(buffer.first(bytes));
      own_stripes_->add(buffer.first(bytes));
    });
  }

  Communicator::Piece chunk(std::span<std::byte> memory, std::size_t index) const {
    return {memory.data() + index * chunk_bytes_, chunk_bytes_};
  }

  void exchange_chunks(std::uint64_t round) {
    std::vector<Communicator::Piece> send, receive;
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      send.push_back(chunk(own_[round % buffers], rank));
      receive.push_back(chunk(chunks_, rank));
    }
    work_.communicator.all_to_all(send, receive, Traffic::control, label);
    work_.device.synchronize();
  }

  void encode() {
    std::vector<const std::byte*> data;
    std::vector<std::byte*> parity;
    for (std::size_t rank = 0; rank < ranks_; ++rank) data.push_back(chunks_.data() + rank * chunk_bytes_);
    for (std::size_t row = 0; row < work_.rows; ++row) parity.push_back(sums_.data() + row * chunk_bytes_);
    code_.encode(data, parity, chunk_bytes_);
  }

  // Of the rows of a group each rank writes one.
  void exchange_row(std::uint64_t round, std::size_t group) {
    const bool writes = group * ranks_ + rank_ < work_.rows;
    const std::span<std::byte> memory = rows_memory_[round % buffers][group];
    if (group < rows_.size()) {  // the buffer is being written from until here, after a failure too
      Transfer before = std::exchange(rows_[group].writes[round % buffers], {});
      guarded([&] { settle(before, "write", rows_[group].file); });
    }
    std::vector<Communicator::Piece> send, receive;
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      const std::size_t row = group * ranks_ + rank;
      send.push_back(row < work_.rows ? chunk(sums_, row) : Communicator::Piece{});
      receive.push_back(writes ? chunk(memory, rank) : Communicator::Piece{});
    }
    work_.communicator.all_to_all(send, receive, Traffic::control, label);
    work_.device.synchronize();
    if (writes) guarded([&] { write_row(round, rows_.at(group), memory); });
  }

  void write_row(std::uint64_t round, Row& row, std::span<std::byte> memory) {
    const Bytes bytes = bytes_in(round, length_);
    const std::uint64_t begin = round * round_bytes_;
    row.sums.add(memory.first(bytes));
    row.writes[round % buffers] = {
        work_.io.submit(IoDirection::write, row.file, begin, HostLease::borrowed(memory), bytes), begin,
        bytes};
  }

  void finish() {
    for (Row& row : rows_) {
      for (Transfer& write : row.writes) settle(write, "write", row.file);
      row.file.sync_data();
    }
  }

  std::uint64_t stripes_in(Bytes file_bytes) const { return divide_up(file_bytes, stripe_bytes_); }

  // Every rank sends its file's checksums and those of its rows.
  ManifestParity gather() {
    std::vector<std::uint32_t> own = own_sums_;
    own.resize(stripes_in(file_.bytes));
    row_sums_.resize(groups_);
    for (std::size_t group = 0; group * ranks_ + rank_ < work_.rows; ++group) {
      row_sums_[group].resize(stripes_in(length_));
      own.insert(own.end(), row_sums_[group].begin(), row_sums_[group].end());
    }
    const std::vector<std::byte> bytes =
        gather_bytes(std::as_bytes(std::span(own)), work_.communicator, work_.device, label);
    const std::byte* next = bytes.data();
    const auto take = [&](Bytes file_bytes) {
      std::vector<std::uint32_t> sums(stripes_in(file_bytes));
      std::memcpy(sums.data(), next, sums.size() * sizeof(std::uint32_t));
      next += sums.size() * sizeof(std::uint32_t);
      return sums;
    };
    ManifestParity parity{.stripe_bytes = stripe_bytes_, .files = {}, .crc32c = {}};
    parity.crc32c.resize(ranks_ + work_.rows);
    for (std::uint32_t row = 0; row < work_.rows; ++row)
      parity.files.push_back({.name = parity_file_name(row, work_.rows), .bytes = length_});
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      parity.crc32c[rank] = take(work_.manifest.files[rank].bytes);
      for (std::size_t row = rank; row < work_.rows; row += ranks_)
        parity.crc32c[ranks_ + row] = take(length_);
    }
    return parity;
  }

  const ParityWork& work_;
  const std::size_t ranks_;
  const std::uint32_t rank_;
  const std::size_t groups_;  // of rows, one a rank
  const ManifestFile& file_;
  const Bytes length_, stripe_bytes_;
  Bytes chunk_bytes_ = 0, round_bytes_ = 0;  // what a rank sums up at once; that of all
  ParityCode code_;
  std::exception_ptr failure_;

  std::array<std::span<std::byte>, buffers> own_;
  std::span<std::byte> chunks_, sums_;                                  // one of each rank; one of each row
  std::array<std::vector<std::span<std::byte>>, buffers> rows_memory_;  // by group

  std::optional<IoFile> own_file_;
  std::vector<std::pair<Bytes, std::uint32_t>> parts_;  // of it
  std::vector<std::uint32_t> own_sums_;
  std::optional<PartSums> own_stripes_, own_parts_;
  Transfer read_;
  std::vector<std::vector<std::uint32_t>> row_sums_;  // by group
  std::vector<Row> rows_;                             // by group
};

}  // namespace

std::string parity_file_name(std::uint32_t row, std::uint32_t rows) {
  return fmt::format("parity-{:05}-of-{:05}.bin", row, rows);
}

ManifestParity write_parity(const ParityWork& work) {
  return ParityWriter(work).run();
}

}  // namespace headrace

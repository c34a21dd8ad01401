// Bringing back what is missing, stale or damaged. See [Note: one commit in several journals] in format.h for
// why a kill at any moment does no harm.
#include <fcntl.h>

#include <algorithm>
#include <cstring>

#include "headrace/errors.h"
#include "headrace/files.h"
#include "headrace/shell_words.h"
#include "swap/pins.h"
#include "swap/stripes.h"
#include "swap/survey.h"

namespace headrace {
namespace swap {
using namespace files;
namespace {

constexpr std::uint32_t most_bad_places = 16;  // that cannot be written on a path that is otherwise good

class Repair {
 public:
  Repair(LockedStore store, IoEngine& engine)
      : survey_(std::move(store.survey)),
        locks_(std::move(store.locks)),
        engine_(engine),
        shape_(survey_.description.shape),
        state_(survey_.stored_state),
        paths_(survey_.paths.size()),
        memory_(survey_.map.largest_piece_bytes() * shape_.pieces()) {
    if (shape_.parity > 0) code_.emplace(shape_.data_pieces(), shape_.parity);
  }

  SwapRepair run() {
    for (std::uint32_t p = 0; p < paths_.size(); ++p) open_good_path(p);
    note_lost_paths();
    for (std::uint32_t p = 0; p < paths_.size(); ++p) append_newest_commit(p);
    for (std::uint32_t p = 0; p < paths_.size(); ++p)
      if (paths_[p].journal) guarded(p, [&] { settle_pins_of(p); });
    for (std::uint32_t p = 0; p < paths_.size(); ++p)
      if (survey_.paths[p].state != SwapPath::State::good) guarded(p, [&] { prepare_lost_path(p); });
    record_folders();
    check_pins();
    bool older_is_whole = false;
    if (survey_.history.superseded) older_is_whole = check_commit(*survey_.history.superseded, nullptr);
    if (!older_is_whole) survey_.history.superseded.reset();
    newest_is_whole_ = check_commit(*survey_.history.newest, &report_.lost_blocks);
    if (!newest_is_whole_) report_.problems.push_back(lost_text());
    for (std::uint32_t p = 0; p < paths_.size(); ++p)
      if (paths_[p].written) guarded(p, [&] { paths_[p].extents->sync_data(); });
    if (report_.problems.empty() || newest_is_whole_) rejoin_paths();
    for (std::uint32_t p = 0; p < paths_.size(); ++p) {
      paths_[p].done.directory = survey_.paths[p].directory;
      report_.paths.push_back(paths_[p].done);
    }
    return std::move(report_);
  }

 private:
  struct Path {
    std::optional<IoFile> extents;   // absent: there is nothing to read or to write
    std::optional<Journal> journal;  // of a good path
    bool made_folder = false, written = false;
    std::uint32_t failures = 0;  // of writing to it: it is still read, and does not become whole
    SwapRepairedPath done;
  };
  struct Piece {
    std::uint32_t index, path;
    IoTicket ticket;
  };

  // What keeps one path from being repaired is no reason not to repair the others, or not to read it.
  template <class Action>
  void guarded(std::uint32_t path, const Action& action) {
    try {
      action();
    } catch (const Error& error) {
      report_.problems.emplace_back(error.what());
      ++paths_[path].failures;
    }
  }

  void open_good_path(std::uint32_t p) {
    const SurveyedPath& found = survey_.paths[p];
    if (found.state != SwapPath::State::good) return;
    paths_[p].extents.emplace(open_extents(found.directory, shape_, IoFile::Mode::read_write));
    paths_[p].journal.emplace(
        Journal::open(found.directory, survey_.description.journal_identity(p), *found.journal));
  }

  void append_newest_commit(std::uint32_t p) {
    if (!paths_[p].journal) return;
    const auto& newest = survey_.paths[p].journal->history.newest;
    if (!newest || newest->sequence != survey_.history.newest->sequence)
      paths_[p].journal->append_commit(*survey_.history.newest, {std::nullopt, survey_.history.superseded});
  }

  void settle_pins_of(std::uint32_t p) {
    if (shape_.pins > 0)
      settle_pins(survey_.paths[p].directory, survey_.description.journal_identity(p), survey_.pins);
  }

  // A pin that is not whole is kept: what is left of it can be read.
  void check_pins() {
    for (const BrokenPin& broken : survey_.broken_pins)
      report_.problems.push_back(
          fmt::format("the pinned version {} is lost: {}", broken.name, broken.problem));
    for (const Pin& pin : survey_.pins) {
      std::vector<std::string> lost;
      if (!check_commit(pin.record, &lost))
        report_.problems.push_back(
            fmt::format("of the pinned version {} (step {}), {} of {} blocks cannot be rebuilt, the first is "
                        "\"{}\". Go back to another one.",
                        pin.name, pin.record.commit.step, lost.size(), survey_.map.blocks(), lost.front()));
    }
  }

  void write_state() {
    for (Path& path : paths_)
      if (path.journal && path.journal->paths_state() != state_) path.journal->write_paths_state(state_);
  }

  // As long as they are being written to, they are none of the store's.
  void note_lost_paths() {
    if (survey_.lost_count() > 0) state_ = {state_.epoch + 1, survey_.state.lost};
    write_state();
  }

  // A description that cannot be read may be another run's, of another version of the program.
  bool may_be_of_another_store(const std::string& directory) const {
    if (!holds_description(directory)) return false;
    try {
      return read_description(directory).store_id != survey_.description.store_id;
    } catch (const Error&) {
    }
    try {
      return store_of_journal(read_file(join(directory, journal_name))) != survey_.description.store_id;
    } catch (const Error&) {
      return true;
    }
  }

  // A folder with an extents.bin of the right size, what is in it kept.
  void prepare_lost_path(std::uint32_t p) {
    const SurveyedPath& found = survey_.paths[p];
    if (found.state == SwapPath::State::foreign) throw UsageError(found.problem + ".");
    if (may_be_of_another_store(found.directory))
      throw UsageError(fmt::format(
          "{}, and {} may be another run's. When nothing in it is wanted, empty it and repair again.",
          found.problem, found.directory));
    const bool folder_is_there = folder_exists(found.directory);
    const int code = folder_is_there ? 0 : make_folder(found.directory);
    if (code != 0)
      throw UsageError(fmt::format(
          "the swap folder {} cannot be made: {}. Mount its drive, or `mkdir -p {}`, and repair again.",
          found.directory, std::strerror(code), shell_word(found.directory)));
    Path& path = paths_[p];
    if (!locks_[p]) locks_[p].emplace(StoreLock::acquire(found.directory));
    path.made_folder = !folder_is_there;
    IoFile file = open_extents(
        found.directory, shape_,
        file_exists(join(found.directory, extents_name)) ? IoFile::Mode::read_write : IoFile::Mode::create);
    if (const Bytes bytes = survey_.map.file_bytes(p); bytes > 0) file.preallocate(bytes);
    path.extents.emplace(std::move(file));
    path.written = true;
  }

  std::byte* memory_of(std::uint32_t block, std::uint32_t piece) const {
    return memory_.memory().data() + piece * survey_.map.piece_bytes(block);
  }

  // What cannot be rebuilt, all in one.
  std::string lost_text() const {
    const std::size_t lost = report_.lost_blocks.size();
    const std::string count = fmt::format("{} of {} blocks", lost, survey_.map.blocks());
    if (shape_.parity == 0)
      return fmt::format(
          "{} {} damaged, the first \"{}\", and this store has no parity: nothing can be "
          "rebuilt. Restore extents.bin, or {}.",
          count, lost == 1 ? "is" : "are", report_.lost_blocks.front(), how_to_start_anew);
    return fmt::format(
        "{} cannot be rebuilt, the first is \"{}\": more pieces of {} are missing or damaged "
        "than parity makes up for ({}). Restore what was on the paths, or {}.",
        count, report_.lost_blocks.front(), lost == 1 ? "it" : "each", shape_.parity, how_to_start_anew);
  }

  // Whether every block of the commit is whole afterwards. Without a list for those that are not it ends at
  // the first of them.
  bool check_commit(const CommitRecord& record, std::vector<std::string>* lost) {
    bool whole = true;
    for (std::uint32_t block = 0; block < survey_.map.blocks(); ++block) {
      if (survey_.map.piece_bytes(block) == 0 || record.table[survey_.map.entry(block)].generation == 0)
        continue;
      if (check_block(record, block)) continue;
      whole = false;
      if (lost == nullptr) return false;
      lost->push_back(survey_.description.blocks[block].name);
    }
    return whole;
  }

  bool check_block(const CommitRecord& record, std::uint32_t block) {
    const std::vector<bool> good = read_pieces(record, block);
    std::vector<ParityCode::Piece> sources, bad;
    for (std::uint32_t piece = 0; piece < good.size(); ++piece)
      (good[piece] ? sources : bad).push_back({piece, memory_of(block, piece)});
    if (bad.empty()) return true;
    if (!code_ || sources.size() < shape_.data_pieces()) return false;
    sources.resize(shape_.data_pieces());
    code_->rebuild(sources, bad, survey_.map.piece_bytes(block));
    for (const ParityCode::Piece& piece : bad)
      if (checksum(block, piece.index) != record.table[survey_.map.entry(block, piece.index)].crc32c)
        return false;
    for (const ParityCode::Piece& piece : bad) write_piece(record, block, piece.index);
    return true;
  }

  std::uint32_t checksum(std::uint32_t block, std::uint32_t piece) const {
    return crc32c({memory_of(block, piece), survey_.map.checked_bytes(block)});
  }

  // All pieces of the block at once; which of them are as they were written.
  std::vector<bool> read_pieces(const CommitRecord& record, std::uint32_t block) {
    const Bytes bytes = survey_.map.piece_bytes(block);
    std::vector<bool> good(shape_.pieces());
    std::vector<Piece> reading;
    for (std::uint32_t piece = 0; piece < shape_.pieces(); ++piece) {
      const ExtentEntry& entry = record.table[survey_.map.entry(block, piece)];
      if (!paths_[entry.path].extents) continue;
      reading.push_back({piece, entry.path,
                         engine_.submit(IoDirection::read, *paths_[entry.path].extents, entry.offset,
                                        HostLease::borrowed({memory_of(block, piece), bytes}), bytes)});
    }
    for (Piece& piece : reading) {
      const IoResult result = piece.ticket.wait();
      ++paths_[piece.path].done.pieces_checked;
      good[piece.index] =
          result.ok() && result.bytes >= survey_.map.checked_bytes(block) &&
          checksum(block, piece.index) == record.table[survey_.map.entry(block, piece.index)].crc32c;
    }
    return good;
  }

  void write_piece(const CommitRecord& record, std::uint32_t block, std::uint32_t piece) {
    const ExtentEntry& entry = record.table[survey_.map.entry(block, piece)];
    Path& path = paths_[entry.path];
    const std::uint32_t bearable =
        survey_.paths[entry.path].state == SwapPath::State::good ? most_bad_places : 1;
    if (!path.extents || path.failures >= bearable) return;
    const Bytes bytes = survey_.map.piece_bytes(block);
    guarded(entry.path, [&] {
      IoTicket ticket = engine_.submit(IoDirection::write, *path.extents, entry.offset,
                                       HostLease::borrowed({memory_of(block, piece), bytes}), bytes);
      const IoResult result = ticket.wait();
      if (!result.ok() || result.bytes < bytes)
        throw IoError("repair", path.extents->path(), entry.offset, bytes, result.ok() ? EIO : result.code);
      path.written = true;
      ++path.done.pieces_rebuilt;
      path.done.bytes_rebuilt += bytes;
    });
  }

  // Where the paths lie from now on, also for who is given one of them only. A lost path's new folder counts
  // before anything is written to it: a repair that ends in between is started again with it.
  void record_folders() {
    Description& store = survey_.description;
    std::vector<std::string> directories = store.directories;
    for (std::uint32_t p = 0; p < paths_.size(); ++p)
      if (paths_[p].extents) directories[p] = absolute(survey_.paths[p].directory);
    if (directories != store.directories) ++store.directories_revision;
    store.directories = std::move(directories);
    for (std::uint32_t p = 0; p < paths_.size(); ++p)
      if (paths_[p].journal && survey_.paths[p].known_directories != store.directories)
        guarded(p, [&] { write_description_of(p); });
  }

  void write_description_of(std::uint32_t p) {
    Description& store = survey_.description;
    store.path = p;
    store.owns_directory = paths_[p].made_folder || survey_.paths[p].owns_directory;
    write_description(survey_.paths[p].directory, store);
  }

  // One after the other: the state that all note then says that it is part of the store again, and those
  // after it are not yet.
  void rejoin_paths() {
    const Description& store = survey_.description;
    for (std::uint32_t p = 0; p < paths_.size(); ++p) {
      if (survey_.paths[p].state == SwapPath::State::good || !paths_[p].extents || paths_[p].failures > 0)
        continue;
      const std::string& directory = survey_.paths[p].directory;
      guarded(p, [&] {
        sync_folder(directory);
        write_description_of(p);
        settle_pins_of(p);
        Journal::replace(directory, store.journal_identity(p), state_, survey_.history);
        sync_folder(parent_of(directory));
        paths_[p].journal.emplace(Journal::open(directory, store.journal_identity(p),
                                                Journal::read(directory, store.journal_identity(p))));
        state_ = {state_.epoch + 1, state_.lost & ~(std::uint64_t{1} << p)};
        write_state();
        paths_[p].done.rejoined = true;
      });
    }
  }

  Survey survey_;
  std::vector<std::optional<StoreLock>> locks_;
  IoEngine& engine_;
  const StripeShape shape_;
  PathsState state_;
  std::vector<Path> paths_;
  std::optional<ParityCode> code_;
  AlignedMemory memory_;
  SwapRepair report_;
  bool newest_is_whole_ = false;
};

}  // namespace
}  // namespace swap

SwapRepair SwapStore::repair(const Directories& directories, IoEngine& engine) {
  using namespace swap;
  LockedStore store = lock_store(directories);
  if (store.survey.description.shape.durability != Durability::step)
    throw UsageError(
        fmt::format("the swap store in {} was written with durability \"none\": it keeps no state to repair.",
                    directories.front()));
  if (!store.survey.history.newest)
    throw UsageError(fmt::format("the swap store in {} holds no committed step: there is nothing to repair.",
                                 directories.front()));
  return Repair(std::move(store), engine).run();
}

}  // namespace headrace

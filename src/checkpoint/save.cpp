// Saving: every rank streams its pieces into a file of its own, or pins them in its swap store; whoever owns
// the folder writes the manifest and makes it visible.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <system_error>

#include "headrace/checkpoint.h"
#include "headrace/checkpoint_space.h"
#include "headrace/elapsed.h"
#include "headrace/errors.h"
#include "headrace/files.h"
#include "src/checkpoint/agreement.h"
#include "src/checkpoint/append_file.h"
#include "src/checkpoint/checkpoint_pins.h"
#include "src/checkpoint/folder.h"
#include "src/checkpoint/parity.h"
#include "src/checkpoint/shard_file.h"

namespace headrace {

static_assert(AppendFile::memory_bytes <= checkpoint_memory_bytes);

// One save, in its phases. Collective, but for the parts that `together` runs.
class Checkpointer::Save {
 public:
  // Of the states that `snapshot` holds, or where it is null the engine's.
  Save(Checkpointer& owner, TrainingState state, std::unique_ptr<StateSnapshot> snapshot)
      : of_(owner),
        state_(std::move(state)),
        steps_applied_(owner.engine_.steps_applied()),
        snapshot_(std::move(snapshot)) {}

  // An update would wait in vain for the reader of a save that has failed.
  Saved run() {
    try {
      return run_phases();
    } catch (...) {
      if (snapshot_) snapshot_->give_up();
      throw;
    }
  }

 private:
  Saved run_phases() {
    require_same_step();
    const auto start = std::chrono::steady_clock::now();
    plan();
    open();
    try {
      require_checkpoint_space({of_.options_.directory, disk_bytes(), of_.options_.keep_last},
                               of_.communicator_, of_.device_);
      if (releases_pins()) named_before_ = of_.pins_->named().names;
      of_.options_.pin ? pin() : write();
      number();
      together("manifest of a checkpoint", [&] { encode(); });
      publishing_ = true;
      together("publish a checkpoint", [&] { publish(); });
    } catch (const Error&) {
      give_up();
      throw;
    }
    const std::string problem = finish();
    return {.path = files::join(of_.options_.directory, checkpoint_name(state_.iteration)),
            .step = state_.iteration,
            .bytes = bytes_,
            .seconds = seconds_since(start),
            .held_up_seconds = snapshot_ ? snapshot_->owner_waited_seconds() : 0,
            .problem = problem};
  }

  // It is visible by now. What is wrong with the rest; no old one goes before the new one is on the disk.
  std::string finish() {
    const std::string& directory = of_.options_.directory;
    try {
      together("name the latest checkpoint", [&] {
        if (owns_folder_) name_latest(directory, state_.iteration);
      });
    } catch (const Error& error) {
      return fmt::format("it may not survive a loss of power, or `latest` names another one: {}",
                         error.what());
    }
    try {
      remove_old_ones();
    } catch (const Error& error) {
      return fmt::format("not all of the old ones could be removed: {}", error.what());
    }
    return "";
  }

  // While it is published it may have become visible: what is pinned stays, and is released later if it was
  // not.
  void give_up() {
    if (owns_folder_) abandon_checkpoint(partial_);
    if (!manifest_.pin.empty() && !publishing_) of_.pins_->give_up(manifest_.pin);
  }

  // The swap store is its owner's: a save beside the steps leaves pins to a later one, or to the next start.
  bool releases_pins() const { return of_.pins_ != nullptr && !snapshot_; }

  void remove_old_ones() {
    together("remove old checkpoints", [&] {
      if (owns_folder_) rotate_checkpoints(of_.options_.directory, of_.options_.keep_last);
    });
    if (releases_pins()) of_.pins_->release(named_before_, manifest_.pin);
  }

  void together(std::string_view label, const std::function<void()>& action) {
    headrace::together(of_.communicator_, of_.device_, label, action);
  }

  void require_same_step() {
    const auto steps =
        gather_from_ranks(state_.iteration, of_.communicator_, of_.device_, "step of a checkpoint");
    for (std::size_t rank = 1; rank < steps.size(); ++rank)
      if (steps[rank] != steps[0])
        throw UsageError(fmt::format("rank {} saves step {}, rank 0 step {}: every rank saves the same.",
                                     rank, steps[rank], steps[0]));
  }

  // The folder is made by rank 0, and by one rank of each host that does not see it then.
  void open() {
    const std::string& directory = of_.options_.directory;
    partial_ = partial_checkpoint(directory, state_.iteration);
    const auto make = [&] {
      owns_folder_ = true;
      begin_checkpoint(directory, state_.iteration);
    };
    together("open a checkpoint", [&] {
      if (of_.communicator_.rank() == 0) make();
    });
    together("open a checkpoint", [&] {
      if (of_.communicator_.rank() != 0 && of_.options_.leads_host && !files::folder_exists(partial_)) make();
    });
  }

  void plan() {
    for (const ParameterSpec* parameter : of_.engine_.parameters())
      manifest_.parameters.push_back({parameter->name, parameter->shape});
    manifest_.states = of_.engine_.state_format();
    manifest_.written_by = of_.options_.written_by;
    manifest_.model = of_.options_.model;
    manifest_.step = state_.iteration;
    manifest_.world_size = static_cast<std::uint32_t>(of_.communicator_.size());
    manifest_.stage = of_.engine_options_.stage;
    manifest_.dtype = name_of(of_.engine_options_.dtype);
    manifest_.training = encode_training_state(state_, steps_applied_);
    if (!of_.options_.pin) plan_shard();
  }

  void plan_shard() {
    std::unordered_map<std::string_view, std::uint32_t> index_of;
    for (std::uint32_t p = 0; p < manifest_.parameters.size(); ++p)
      index_of.emplace(manifest_.parameters[p].name, p);
    arrays_ = stored_arrays(manifest_.states);
    shard_ = plan_shard_file(snapshot_ ? snapshot_->pieces() : of_.engine_.state_pieces(), arrays_, index_of,
                             static_cast<std::uint32_t>(of_.communicator_.rank()));
  }

  void visit_pieces(const PieceVisitor& visit) {
    if (snapshot_)
      snapshot_->visit(visit);
    else
      of_.engine_.visit_pieces(visit);
  }

  // What this rank writes: its share of the manifest (and its copy), and of parity. A collective.
  Bytes disk_bytes() {
    const auto rows = of_.options_.parity;
    if (of_.options_.pin) return owns_folder_ ? to_text(manifest_).size() + stores_bytes() : 0;
    Bytes bytes = shard_.bytes + shard_.slices.size() * slice_description_bytes * (rows > 0 ? 2 : 1);
    if (rows == 0) return bytes;
    const auto files =
        gather_from_ranks(shard_.bytes, of_.communicator_, of_.device_, "files of a checkpoint");
    const Bytes row_bytes = round_up(*std::ranges::max_element(files), parity_alignment);
    for (std::uint32_t row = 0; row < rows; ++row)
      if (static_cast<int>(writer_of_parity(row, files.size())) == of_.communicator_.rank())
        bytes += row_bytes;
    return bytes;
  }

  // Of their names in the manifest of a pinned one, at most but for very long names.
  Bytes stores_bytes() const {
    constexpr Bytes name_bytes = 256;
    return name_bytes * (1 + static_cast<Bytes>(of_.communicator_.size()) *
                                 (1 + of_.engine_options_.swap_directories.size()));
  }

  void write_shard() {
    const std::string name = shard_file_name(of_.communicator_.rank(), of_.communicator_.size());
    AppendFile file(of_.io_, files::join(partial_, name), shard_.bytes, of_.memory_.memory());
    const auto header = std::as_bytes(std::span(shard_.header));
    header_crc32c_ = file.append(header);
    std::size_t next = 0;
    std::exception_ptr failure;  // the engine's reads go on to their end: training does after this
    visit_pieces([&](const StatePiece& piece, const StateArrays& states, std::uint64_t at) {
      if (failure != nullptr) return;
      try {
        for (const StoredArray& array : arrays_) {
          const std::span<const std::byte> bytes = stored_bytes(array, states, at, piece.numel);
          shard_.slices[next++].crc32c = file.append(bytes);
        }
      } catch (const IoError&) {
        if (snapshot_) throw;
        failure = std::current_exception();
      }
    });
    if (failure != nullptr) std::rethrow_exception(failure);
    file.finish();
  }

  void write() {
    together("write a checkpoint", [&] { write_shard(); });
    gather_files();
    if (of_.options_.parity > 0) together("parity of a checkpoint", [&] { add_parity(); });
  }

  // The newest commit, which has the states of now. Room for it is what an earlier save that was ended before
  // it could remove anything left too many of.
  void pin() {
    remove_old_ones();
    CheckpointPins::Pinned pinned = of_.pins_->pin(state_.iteration);
    manifest_.pin = std::move(pinned.name);
    manifest_.stores = std::move(pinned.stores);
  }

  // One more than any checkpoint that a rank sees.
  void number() {
    std::uint64_t newest = 0;
    together("checkpoints of a folder", [&] {
      const std::vector<FoundCheckpoint> before = find_checkpoints(of_.options_.directory);
      if (!before.empty()) newest = before.back().sequence;
    });
    for (const std::uint64_t sequence :
         gather_from_ranks(newest, of_.communicator_, of_.device_, "sequence of a checkpoint"))
      manifest_.sequence = std::max(manifest_.sequence, sequence + 1);
  }

  void gather_files() {
    const ManifestFile own{.name = {},
                           .bytes = shard_.bytes,
                           .header_bytes = shard_.header.size(),
                           .header_crc32c = header_crc32c_};
    struct Numbers {
      Bytes bytes, header_bytes;
      std::uint64_t header_crc32c;
    };
    const auto files = gather_from_ranks(Numbers{own.bytes, own.header_bytes, own.header_crc32c},
                                         of_.communicator_, of_.device_, "files of a checkpoint");
    for (std::size_t rank = 0; rank < files.size(); ++rank) {
      manifest_.files.push_back(
          {.name = shard_file_name(static_cast<int>(rank), static_cast<int>(files.size())),
           .bytes = files[rank].bytes,
           .header_bytes = files[rank].header_bytes,
           .header_crc32c = static_cast<std::uint32_t>(files[rank].header_crc32c)});
      bytes_ += files[rank].bytes;
    }
    const std::vector<std::byte> slices = gather_bytes(
        std::as_bytes(std::span(shard_.slices)), of_.communicator_, of_.device_, "slices of a checkpoint");
    manifest_.slices.resize(slices.size() / sizeof(ManifestSlice));
    std::memcpy(manifest_.slices.data(), slices.data(), slices.size());
  }

  void add_parity() {
    manifest_.parity = write_parity({.folder = partial_,
                                     .manifest = manifest_,
                                     .rows = of_.options_.parity,
                                     .io = of_.io_,
                                     .communicator = of_.communicator_,
                                     .device = of_.device_,
                                     .memory = of_.memory_.memory()});
    for (const ManifestFile& file : manifest_.parity->files) bytes_ += file.bytes;
  }

  // A checkpoint that could not be read must not take the place of one that can.
  void encode() {
    if (!owns_folder_) return;
    text_ = to_text(manifest_);
    bytes_ += text_.size();
    if (!of_.options_.pin) return;  // of files it may be large, and names nothing of elsewhere
    try {
      parse_manifest(text_, files::join(partial_, manifest_name));
    } catch (const CorruptData& error) {
      throw Error(fmt::format("what was to be saved could not be read again: {}", error.what()));
    }
  }

  void publish() {
    if (!owns_folder_) return;
    publish_checkpoint(of_.options_.directory, state_.iteration, text_, manifest_.parity.has_value());
  }

  Checkpointer& of_;
  const TrainingState state_;
  const std::uint64_t steps_applied_;
  const std::unique_ptr<StateSnapshot> snapshot_;
  std::string partial_, text_;             // its folder until it is published; the manifest
  std::vector<std::string> named_before_;  // pins of checkpoints that it may replace or remove
  bool owns_folder_ = false, publishing_ = false;
  Manifest manifest_;
  std::vector<StoredArray> arrays_;
  ShardFile shard_;
  std::uint32_t header_crc32c_ = 0;
  Bytes bytes_ = 0;
};

Checkpointer::Checkpointer(Engine& engine, IoEngine& io, Communicator& communicator, Device& device,
                           const EngineOptions& engine_options, const CheckpointOptions& options)
    : engine_(engine),
      io_(io),
      communicator_(communicator),
      device_(device),
      engine_options_(engine_options),
      options_(options),
      memory_(engine.host_budget(), MemoryTag::staging, checkpoint_memory_bytes) {
  // Rank 0 first: another host's leader that sees its lock shares the folder.
  together(communicator, device, "checkpoint folder", [&] {
    if (communicator.rank() == 0) lock_ = lock_checkpoints(options.directory);
  });
  if (SwapStore* store = engine.swap_store(); store != nullptr && store->most_pins() > 0) {
    pins_ = std::make_unique<CheckpointPins>(*store, engine_options.swap_directories, options.directory,
                                             communicator, device);
    pins_->release_left_over();
  }
  HEADRACE_CHECK(!options.pin || pins_ != nullptr, "checkpoints are pinned in a store without room for any");
}

Checkpointer::Saved Checkpointer::save(const TrainingState& state) {
  return Save(*this, state, nullptr).run();
}

void Checkpointer::begin(const TrainingState& state) {
  HEADRACE_CHECK(!options_.pin, "a pinned save copies nothing, and is not begun beside the steps");
  HEADRACE_CHECK(!saving(), "a save begins before the one before was asked for its result");
  try {
    saving_ =
        std::async(std::launch::async,
                   [save = std::make_unique<Save>(*this, state, engine_.snapshot())] { return save->run(); });
  } catch (const std::system_error& error) {  // no more threads: as the other ranks, and this one waits
    if (engine_options_.optimizer_tier == Tier::device && communicator_.size() > 1)  // they wait for it
      throw Error(fmt::format("a save beside the steps has no thread: {}.", error.what()));
    std::promise<Saved> done;
    saving_ = done.get_future();
    try {
      done.set_value(save(state));
    } catch (const Error&) {
      done.set_exception(std::current_exception());
    }
  }
}

// States of the device come to the saver by the owner's calls alone.
bool Checkpointer::ended(bool wait) {
  using std::chrono::milliseconds;
  if (!saving()) return true;
  while (saving_.wait_for(milliseconds(wait ? 1 : 0)) != std::future_status::ready) {
    engine_.serve_snapshot();
    if (!wait) return false;
  }
  return true;
}

std::optional<Checkpointer::Saved> Checkpointer::result(bool wait) {
  if (!saving() || !ended(wait)) return std::nullopt;
  return saving_.get();
}

Checkpointer::~Checkpointer() {
  if (!saving()) return;
  try {
    ended(true);
  } catch (const std::exception&) {  // the device's, which was or will be thrown elsewhere
    engine_.end_snapshot();
  }
}

}  // namespace headrace

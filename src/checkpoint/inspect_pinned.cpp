#include "src/checkpoint/inspect_pinned.h"

#include <fmt/ranges.h>

#include "headrace/errors.h"
#include "headrace/state_hash.h"
#include "src/checkpoint/open_manifest.h"
#include "src/checkpoint/pinned_states.h"
#include "src/checkpoint/stored_arrays.h"

namespace headrace {
namespace {

using State = CheckpointFile::State;

Bytes bytes_of(const StateFormat& states, std::uint64_t numel) {
  Bytes bytes = 0;
  for (const StoredArray& array : stored_arrays(states)) bytes += array.bytes_of(numel);
  return bytes;
}

// Whether each is there and keeps the version.
bool look_at_stores(const std::string& path, const Manifest& manifest, IoEngine& engine,
                    CheckpointReport& report) {
  for (std::uint32_t rank = 0; rank < manifest.stores.size(); ++rank) {
    try {
      (void)open_pinned_store(path, manifest, rank, engine);
    } catch (const UsageError&) {
      throw;
    } catch (const Error& error) {
      report.files[rank].state = State::missing;
      report.problems.emplace_back(error.what());
    }
  }
  return report.good();
}

// A rank of replicated states has none of its own.
void count_pieces(const PinnedStates& states, CheckpointReport& report) {
  const auto by_rank = states.pieces_by_rank();
  for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
    CheckpointFile& file = report.files[rank];
    file.slices = by_rank[rank].size();
    for (const StateReader::Piece& piece : by_rank[rank])
      file.states_bytes += bytes_of(states.manifest().states, piece.numel);
    file.bytes = file.states_bytes;
    report.bytes += file.bytes;
    report.slices += file.slices;
  }
}

// The elements of one rank; of what is hashed the sum. False where a stop is asked for.
bool read_pieces(PinnedStates& states, const std::vector<StateReader::Piece>& pieces, bool hash,
                 const InspectControl& control, CheckpointReport& report, std::uint64_t& sum) {
  const Manifest& manifest = states.manifest();
  for (const StateReader::Piece& piece : pieces) {
    if (control.stop_requested && control.stop_requested()) return false;
    std::uint64_t first = piece.first;
    states.read(piece.parameter, piece.first, piece.numel,
                [&](std::uint64_t at, std::uint64_t numel, const StateArrays& arrays) {
                  if (hash)
                    sum += hash_states(manifest.parameters[piece.parameter].name, first, manifest.states,
                                       arrays, at, numel);
                  first += numel;
                });
    report.checked_bytes += bytes_of(manifest.states, piece.numel);
    if (control.progress) control.progress(report.checked_bytes, report.bytes);
  }
  return true;
}

// The same states as the first rank's: read from there, but a run of that rank goes back to these.
void read_replica(const PinnedStates& states, IoEngine& engine, CheckpointFile& file,
                  CheckpointReport& report) {
  const PinnedStore store = open_pinned_store(report.facts.path, states.manifest(), file.rank, engine);
  file.state = State::good;
  for (std::uint32_t block = 0; block < store.store->blocks().size(); ++block)
    for (const SwapStore::DamagedPiece& piece : store.store->damage(block)) {
      report.problems.push_back(piece.problem);
      file.state = State::damaged;
    }
}

void read_all(PinnedStates& states, bool hash, IoEngine& engine, const InspectControl& control,
              CheckpointReport& report) {
  const auto by_rank = states.pieces_by_rank();
  std::uint64_t sum = 0;
  for (CheckpointFile& file : report.files) {
    try {
      if (file.slices == 0) {
        read_replica(states, engine, file, report);
        continue;
      }
      report.stopped = !read_pieces(states, by_rank[file.rank], hash, control, report, sum);
      if (report.stopped) return;
      file.state = State::good;
    } catch (const CorruptData& error) {
      report.problems.emplace_back(error.what());
      file.state = State::damaged;
    }
  }
  const TrainingState& state = report.facts.state;
  if (hash && report.good())
    report.state_hash = finish_state_hash(sum, report.facts.steps_applied, state.rng_state,
                                          state.loss_scale.scale, state.data_position);
}

}  // namespace

CheckpointReport inspect_pinned(const std::string& path, const Manifest& manifest,
                                const InspectOptions& options, IoEngine& engine,
                                const InspectControl& control) {
  CheckpointReport report;
  report.facts = facts_of(manifest, path);
  report.parameters = manifest.parameters.size();
  for (const ManifestParameter& one : manifest.parameters) report.parameter_numel += one.numel();
  for (std::uint32_t rank = 0; rank < manifest.stores.size(); ++rank)
    report.files.push_back(
        {.name = fmt::format("pinned in {}", fmt::join(manifest.stores[rank].directories, ", ")),
         .rank = rank});
  if (!look_at_stores(path, manifest, engine, report)) return report;
  MemoryBudget budget("host", ~Bytes{0});
  PinnedStates states(path, manifest, engine, budget);
  count_pieces(states, report);
  if (!options.verify && !options.hash) return report;
  read_all(states, options.hash, engine, control, report);
  return report;
}

}  // namespace headrace

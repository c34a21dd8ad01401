#include "src/checkpoint/pinned_states.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>

#include "headrace/engine_states.h"
#include "headrace/errors.h"
#include "headrace/files.h"

namespace headrace {
namespace {

constexpr std::string_view only_here =
    "A pinned checkpoint lives in the swap stores of the machine that saved it, as long as they do: bring "
    "them "
    "back, or load another checkpoint. Where they were moved, train --resume with their new --swap-path "
    "finds "
    "them.";

// A folder of the store that is there; what is wrong with the others.
std::optional<std::string> folder_of_store(const ManifestStore& store, std::vector<std::string>& problems) {
  for (const std::string& directory : store.directories) {
    try {
      if (!files::folder_exists(directory))
        problems.push_back(fmt::format("{} does not exist", directory));
      else if (const std::uint64_t id = SwapStore::id_of(directory); id != store.id)
        problems.push_back(fmt::format("{} holds another swap store, {:016x} in the place of {:016x}",
                                       directory, id, store.id));
      else
        return directory;
    } catch (const Error&) {
      problems.push_back(fmt::format("there is no swap store in {}", directory));
    }
  }
  return std::nullopt;
}

bool keeps(const std::vector<SwapPin>& pins, const std::string& name) {
  return std::ranges::find(pins, name, &SwapPin::name) != pins.end();
}

void check_belongs(const std::string& path, const Manifest& manifest, std::uint32_t rank,
                   const PinnedStore& store) {
  const EngineLayout& layout = store.layout;
  const std::vector<SwapBlock>& blocks = store.store->blocks();
  bool belongs = layout.states == manifest.states && layout.world_size == manifest.world_size &&
                 layout.rank == rank && layout.blocks.size() == blocks.size();
  for (std::size_t b = 0; belongs && b < blocks.size(); ++b)
    belongs = blocks[b].bytes == state_bytes(layout.states, layout.blocks[b].numel);
  if (!belongs)
    throw CorruptData(fmt::format("{} and the swap store in {} do not belong together.", path,
                                  fmt::join(store.directories, ", ")));
}

}  // namespace

PinnedStore open_pinned_store(const std::string& path, const Manifest& manifest, std::uint32_t rank,
                              IoEngine& io) {
  std::vector<std::string> problems;
  const std::optional<std::string> found = folder_of_store(manifest.stores[rank], problems);
  if (!found)
    throw CorruptData(fmt::format("the states of the checkpoint {} are gone: of rank {}, {}. {}", path, rank,
                                  fmt::join(problems, "; "), only_here));
  PinnedStore store{.directories = SwapStore::directories_of(*found), .store = {}, .layout = {}};
  store.store = SwapStore::open_read_only(store.directories, io);
  if (!keeps(store.store->pins(), manifest.pin))
    throw CorruptData(
        fmt::format("the states of the checkpoint {} are gone: the swap store in {} no longer keeps "
                    "its version {}. Load another checkpoint.",
                    path, fmt::join(store.directories, ", "), manifest.pin));
  store.store->position_at_pin(manifest.pin);
  store.layout = parse_engine_layout(store.store->layout());
  check_belongs(path, manifest, rank, store);
  return store;
}

PinnedStates::PinnedStates(std::string path, Manifest manifest, IoEngine& io, MemoryBudget& budget)
    : path_(std::move(path)), manifest_(std::move(manifest)), places_(manifest_.parameters.size()) {
  const auto ranks = static_cast<std::uint32_t>(manifest_.stores.size());
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    stores_.push_back(open_pinned_store(path_, manifest_, rank, io));
    if (!stores_.front().layout.optimizer_sharded) break;
  }
  Bytes largest = 0;
  for (std::uint32_t rank = 0; rank < stores_.size(); ++rank) {
    index(rank);
    const SwapStore& store = *stores_[rank].store;
    for (std::uint32_t block = 0; block < store.blocks().size(); ++block)
      largest = std::max(largest, store.buffer_bytes(block));
  }
  pieces_.resize(ranks);
  check_complete();
  memory_ = HostBuffer(budget, MemoryTag::staging, largest);
}

// The stores are cut alike.
Bytes PinnedStates::memory_bytes(const Manifest& manifest) {
  std::vector<std::string> problems;
  const std::optional<std::string> found = folder_of_store(manifest.stores.front(), problems);
  if (!found) return 0;
  const SwapDescription store = SwapStore::describe(SwapStore::directories_of(*found));
  Bytes largest = 0;
  for (const SwapBlock& block : store.blocks) largest = std::max(largest, block.bytes);
  return round_up(largest, SwapStore::buffer_alignment(store.paths.size(), store.parity));
}

// Pieces as the engine cuts them.
void PinnedStates::index(std::uint32_t rank) {
  std::map<std::string_view, std::uint32_t> numbers;
  for (std::uint32_t p = 0; p < manifest_.parameters.size(); ++p) numbers[manifest_.parameters[p].name] = p;
  std::vector<Piece>& pieces = pieces_.emplace_back();
  const EngineLayout& layout = stores_[rank].layout;
  for (std::uint32_t b = 0; b < layout.blocks.size(); ++b) {
    const LayoutBlock& block = layout.blocks[b];
    for (const LayoutParameter& parameter : layout.units.at(block.unit).parameters) {
      const std::uint64_t begin = std::max(block.first, parameter.offset),
                          end = std::min(block.first + block.numel, parameter.offset + parameter.numel);
      if (begin >= end) continue;
      const auto number = numbers.find(parameter.name);
      if (number == numbers.end())
        throw CorruptData(
            fmt::format("{} does not name {}, which its swap stores hold.", path_, parameter.name));
      const std::uint64_t first = begin - parameter.offset;
      places_[number->second].push_back({first, end - begin, rank, b, begin - block.first});
      for (std::uint64_t done = 0; done < end - begin; done += most_piece_numel)
        pieces.push_back({number->second, first + done, std::min(most_piece_numel, end - begin - done)});
    }
  }
}

void PinnedStates::check_complete() {
  for (std::uint32_t p = 0; p < places_.size(); ++p) {
    std::ranges::sort(places_[p], {}, &Place::first);
    std::uint64_t covered = 0;
    for (const Place& place : places_[p]) {
      if (place.first != covered) break;
      covered += place.numel;
    }
    if (covered != manifest_.parameters[p].numel())
      throw CorruptData(
          fmt::format("the swap stores of {} do not make up {}.", path_, manifest_.parameters[p].name));
  }
}

std::vector<std::vector<StateReader::Piece>> PinnedStates::pieces_by_rank() const {
  return pieces_;
}

void PinnedStates::throw_damage(const Place& place, const std::string& why) {
  const PinnedStore& from = stores_[place.store];
  if (!keeps(SwapStore::describe(from.directories).pins, manifest_.pin))
    throw CorruptData(
        fmt::format("the checkpoint {} was removed while it was read: the swap store in {} no longer "
                    "keeps its version {}. Load another checkpoint.",
                    path_, fmt::join(from.directories, ", "), manifest_.pin));
  std::vector<std::string> problems;
  for (const SwapStore::DamagedPiece& piece : from.store->damage(place.block))
    problems.push_back(piece.problem);
  throw CorruptData(fmt::format("the checkpoint {} is damaged: {}. Load another checkpoint.", path_,
                                problems.empty() ? why : fmt::format("{}", fmt::join(problems, "; "))));
}

void PinnedStates::load(const Place& place) {
  const PinnedStore& from = stores_[place.store];
  if (loaded_store_ == &from && loaded_block_ == place.block) return;
  loaded_store_ = nullptr;
  const std::span<std::byte> buffer = memory_.memory().first(from.store->buffer_bytes(place.block));
  try {
    if (from.store->extents(place.block).empty())
      throw CorruptData(fmt::format("block {} was never written", place.block));
    from.store->read(place.block, HostLease::borrowed(buffer)).wait();
  } catch (const CorruptData& error) {
    throw_damage(place, error.what());
  }
  loaded_ = state_arrays(manifest_.states, buffer.data(), from.layout.blocks[place.block].numel);
  loaded_store_ = &from;
  loaded_block_ = place.block;
}

void PinnedStates::read(std::uint32_t parameter, std::uint64_t first, std::uint64_t numel,
                        const Visit& visit) {
  const std::vector<Place>& places = places_[parameter];
  const auto behind = std::ranges::upper_bound(places, first, {}, &Place::first);
  for (auto place = behind - 1; numel > 0; ++place) {
    load(*place);
    const std::uint64_t skipped = first - place->first, count = std::min(numel, place->numel - skipped);
    visit(place->at + skipped, count, loaded_);
    first += count;
    numel -= count;
  }
}

}  // namespace headrace

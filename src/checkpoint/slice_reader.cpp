#include "src/checkpoint/slice_reader.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "headrace/checkpoint.h"
#include "headrace/errors.h"
#include "headrace/files.h"
#include "src/checkpoint/checkpoint_files.h"

namespace headrace {
namespace {

constexpr std::size_t most_sets = 64;  // read ahead: more keep no disk busier

std::uint64_t largest_slice(const Manifest& manifest) {
  std::uint64_t largest = 0;
  for (const ManifestSlice& slice : manifest.slices) largest = std::max(largest, slice.numel);
  return largest;
}

// Where one array's elements are, of a set.
void place(const StoredArray& array, std::span<std::byte> bytes, StateArrays& states) {
  if (array.moment < 0) {
    states.master = bytes.data();
    return;
  }
  MomentArray& moment = states.moments[static_cast<std::size_t>(array.moment)];
  if (array.scales)
    moment.scales = reinterpret_cast<float*>(bytes.data());
  else
    moment.values = bytes.data();
}

std::size_t arrays_read(const std::vector<StoredArray>& arrays, SliceReader::What what) {
  return what == SliceReader::What::masters_alone ? 1 : arrays.size();
}

}  // namespace

Bytes SliceReader::memory_bytes(const Manifest& manifest, What what) {
  const std::vector<StoredArray> arrays = stored_arrays(manifest.states);
  Bytes bytes = 0;
  for (std::size_t a = 0; a < arrays_read(arrays, what); ++a)
    bytes += ReadRing::most_bytes_of(arrays[a].bytes_of(largest_slice(manifest)));
  return std::max(bytes, checkpoint_memory_bytes);
}

SliceReader::SliceReader(const std::string& folder, Manifest manifest, IoEngine& engine,
                         std::span<std::byte> memory, What what, Rebuilding rebuilding)
    : folder_(folder),
      manifest_(std::move(manifest)),
      engine_(engine),
      arrays_(stored_arrays(manifest_.states)),
      read_arrays_(arrays_read(arrays_, what)),
      ring_(memory.first(memory_bytes(manifest_, what))),
      files_(manifest_.files.size()),
      rebuilding_(std::move(rebuilding)),
      damaged_(manifest_.file_count()) {
  check_files(rebuilding_.needed);
  if (!manifest_.problem.empty() && rebuilding_.on_damage) rebuilding_.on_damage(manifest_.problem);
  index_slices();
}

void SliceReader::check_files(const std::vector<bool>& needed) {
  const std::vector<FileProblem> problems = look_at_files(folder_, manifest_);
  if (problems.empty()) return;
  // Where ranks have folders of their own, a file that this one does not need may be elsewhere.
  const auto is_needed = [&](const FileProblem& problem) {
    return problem.file < manifest_.files.size() && (needed.empty() || needed[problem.file]);
  };
  const bool shared = std::ranges::none_of(problems, [&](const FileProblem& problem) {
    return problem.file < manifest_.files.size() && !is_needed(problem);
  });
  if (parity_makes_up_for(problems, manifest_)) {
    for (const FileProblem& problem : problems)
      if (shared || is_needed(problem)) note_damage(problem.file, problem.what);
    return;
  }
  if (std::ranges::none_of(problems, is_needed)) return;
  std::vector<std::string> texts;
  for (const FileProblem& problem : problems)
    texts.push_back(fmt::format("{} {}", manifest_.file(problem.file).name, problem.what));
  throw CorruptData(fmt::format(
      "the checkpoint {} is not whole: {}{}. Bring the files back (each rank of a run writes "
      "its own, on its own host's disk where the folder is not shared), or load another checkpoint.",
      folder_, fmt::join(texts, "; "),
      manifest_.parity ? fmt::format(", and its parity makes up for {}", manifest_.parity_rows()) : ""));
}

void SliceReader::index_slices() {
  pieces_.resize(manifest_.parameters.size());
  others_.resize(manifest_.slices.size());
  std::map<std::tuple<std::uint32_t, std::uint64_t, std::uint64_t>, std::vector<std::uint32_t>> together;
  for (std::uint32_t s = 0; s < manifest_.slices.size(); ++s) {
    const ManifestSlice& slice = manifest_.slices[s];
    auto& all = together[{slice.parameter, slice.first, slice.numel}];
    if (all.empty()) all.assign(arrays_.size(), ~0u);
    all[slice.array] = s;
  }
  std::vector<std::uint64_t> covered(manifest_.parameters.size(), 0);
  bool whole = true;
  for (auto& [place, all] : together) {  // by parameter and first element
    const auto [parameter, first, numel] = place;
    whole = whole && covered[parameter] == first && std::ranges::find(all, ~0u) == all.end();
    if (!whole) break;
    covered[parameter] += numel;
    pieces_[parameter].push_back(all.front());
    others_[all.front()] = std::move(all);
  }
  for (std::size_t p = 0; p < covered.size(); ++p)
    whole = whole && covered[p] == manifest_.parameters[p].numel();
  if (!whole)
    throw CorruptData(fmt::format("{} is damaged: its slices do not make up the parameters.",
                                  files::join(folder_, manifest_name)));
}

// Null where it cannot be opened and parity stands for it.
IoFile* SliceReader::file(std::uint32_t index) {
  OpenFile& one = files_[index];
  if (one.file || one.tried) return one.file ? &*one.file : nullptr;
  one.tried = true;
  try {
    one.file.emplace(
        IoFile::open(files::join(folder_, manifest_.files[index].name), IoFile::Mode::read_only));
  } catch (const IoError&) {
    if (!manifest_.parity) throw;
    return nullptr;
  }
  return &*one.file;
}

const ManifestSlice& SliceReader::slice_of(const Set& set, std::size_t array) const {
  return manifest_.slices[others_[set.slice][array]];
}

bool SliceReader::submit(std::uint32_t slice) {
  Set set{.slice = slice, .checked = false, .buffers = {}, .tickets = {}};
  std::vector<ReadRing::Part> parts;
  std::vector<const IoFile*> from;
  for (std::size_t a = 0; a < read_arrays_; ++a) {
    const ManifestSlice& one = slice_of(set, a);
    parts.push_back({arrays_[a].bytes_of(one.numel), one.begin});
    from.push_back(file(one.file));
  }
  std::optional<std::vector<std::span<std::byte>>> buffers = ring_.take(parts);
  if (!buffers) return false;
  set.buffers = std::move(*buffers);
  for (std::size_t a = 0; a < read_arrays_; ++a)
    set.tickets.push_back(from[a] == nullptr
                              ? IoTicket()
                              : engine_.submit(IoDirection::read, *from[a], parts[a].offset,
                                               HostLease::borrowed(set.buffers[a]), parts[a].bytes));
  sets_.push_back(std::move(set));
  return true;
}

void SliceReader::expect(std::vector<ParameterRange> ranges) {
  if (sets_.size() > 1)
    while (!sets_.empty()) drop_oldest();
  awaited_.reset();
  expected_ = std::move(ranges);
  expected_range_ = 0;
  expected_piece_.reset();
  awaited_ = next_expected();
}

std::optional<std::uint32_t> SliceReader::next_expected() {
  for (; expected_range_ < expected_.size(); ++expected_range_, expected_piece_.reset()) {
    const auto& [parameter, first, numel] = expected_[expected_range_];
    if (numel == 0) continue;
    if (!expected_piece_) expected_piece_ = piece_at(parameter, first);
    for (std::size_t& piece = *expected_piece_; piece < pieces_[parameter].size(); ++piece) {
      const std::uint32_t slice = pieces_[parameter][piece];
      if (manifest_.slices[slice].first >= first + numel) break;
      const std::optional<std::uint32_t> before = awaited_        ? awaited_
                                                  : sets_.empty() ? std::nullopt
                                                                  : std::optional(sets_.back().slice);
      if (slice != before) return slice;
    }
  }
  return std::nullopt;
}

void SliceReader::read_ahead() {
  while (awaited_ && sets_.size() < most_sets && submit(*awaited_)) awaited_ = next_expected();
}

void SliceReader::drop_oldest() {
  sets_.pop_front();
  ring_.give_back_oldest();
}

// The first set, checked.
StateArrays SliceReader::load(std::uint32_t slice) {
  if (!sets_.empty() && sets_.front().slice != slice) drop_oldest();
  if (sets_.empty()) read_ahead();
  if (sets_.empty() || sets_.front().slice != slice) {
    while (!sets_.empty()) drop_oldest();
    expect({});
    HEADRACE_CHECK(submit(slice), "the memory of a SliceReader is too small for a slice");
  }
  read_ahead();
  Set& set = sets_.front();
  for (std::size_t a = 0; a < read_arrays_ && !set.checked; ++a) check(set, a);
  set.checked = true;
  StateArrays states;
  for (std::size_t a = 0; a < read_arrays_; ++a) place(arrays_[a], set.buffers[a], states);
  return states;
}

void SliceReader::check(Set& set, std::size_t array) {
  const ManifestSlice& slice = slice_of(set, array);
  const std::span<std::byte> buffer = set.buffers[array];
  if (!set.tickets[array]) return rebuild(buffer, slice);
  const IoResult result = set.tickets[array].wait();
  if (result.ok() && crc32c(buffer) == slice.crc32c) return;
  if (manifest_.parity) return rebuild(buffer, slice);
  const std::string path = files::join(folder_, manifest_.files[slice.file].name);
  if (!result.ok())
    throw IoError("read", path, slice.begin + result.bytes, buffer.size() - result.bytes, result.code);
  throw CorruptData(fmt::format(
      "{} is damaged: {} of {}, elements {} to {}, at byte {}, is not what was written. Load another "
      "checkpoint.",
      path, arrays_[array].name, manifest_.parameters[slice.parameter].name, slice.first,
      slice.first + slice.numel, slice.begin));
}

void SliceReader::note_damage(std::uint32_t file, std::string_view what) {
  if (damaged_[file]) return;
  damaged_[file] = true;
  if (rebuilding_.on_damage) rebuilding_.on_damage(fmt::format("{} {}", manifest_.file(file).name, what));
}

void SliceReader::read_stripe(std::uint64_t stripe) {
  if (stripe_ == stripe) return;
  stripe_.reset();
  if (!stripes_) {
    stripe_memory_ = HostBuffer(rebuilding_.budget != nullptr ? *rebuilding_.budget : uncounted_,
                                MemoryTag::staging, CheckpointStripes::memory_bytes(manifest_));
    stripes_.emplace(folder_, manifest_, engine_, stripe_memory_.memory());
  }
  const std::vector<CheckpointStripes::Bad>& bad = stripes_->read(stripe);
  for (const CheckpointStripes::Bad& one : bad) note_damage(one.file, one.what);
  if (!stripes_->rebuild()) {
    std::vector<std::string> texts;
    for (const CheckpointStripes::Bad& one : bad)
      texts.push_back(fmt::format("{} {}", manifest_.file(one.file).name, one.what));
    throw CorruptData(
        fmt::format("the checkpoint {} is damaged beyond its parity, which makes up for {} of its files: {}. "
                    "Load another checkpoint.",
                    folder_, manifest_.parity_rows(), fmt::join(texts, "; ")));
  }
  stripe_ = stripe;
}

// From the stripes that hold it.
void SliceReader::rebuild(std::span<std::byte> out, const ManifestSlice& slice) {
  const Bytes stripe_bytes = manifest_.parity->stripe_bytes, bytes = out.size();
  for (Bytes done = 0; done < bytes;) {
    const std::uint64_t at = slice.begin + done, stripe = at / stripe_bytes;
    read_stripe(stripe);
    const std::span<const std::byte> piece = stripes_->piece(slice.file).subspan(at % stripe_bytes);
    const Bytes count = std::min<Bytes>(piece.size(), bytes - done);
    std::ranges::copy(piece.first(count), out.begin() + static_cast<std::ptrdiff_t>(done));
    done += count;
  }
  if (crc32c(out) != slice.crc32c)
    throw CorruptData(
        fmt::format("{} of the checkpoint {} contradicts itself: the checksums of {} in a slice "
                    "and in parity differ. Load another checkpoint.",
                    manifest_name, folder_, manifest_.files[slice.file].name));
}

std::size_t SliceReader::piece_at(std::uint32_t parameter, std::uint64_t element) const {
  const std::vector<std::uint32_t>& pieces = pieces_[parameter];
  const auto behind = std::ranges::upper_bound(
      pieces, element, {}, [&](std::uint32_t slice) { return manifest_.slices[slice].first; });
  return static_cast<std::size_t>(behind - pieces.begin()) - 1;
}

void SliceReader::read(std::uint32_t parameter, std::uint64_t first, std::uint64_t numel,
                       const Visit& visit) {
  if (numel == 0) return;
  for (std::size_t piece = piece_at(parameter, first); numel > 0; ++piece) {
    const std::uint32_t wanted = pieces_[parameter][piece];
    const StateArrays states = load(wanted);
    const ManifestSlice& slice = manifest_.slices[wanted];
    const std::uint64_t at = first - slice.first, count = std::min(numel, slice.numel - at);
    visit(at, count, states);
    first += count;
    numel -= count;
  }
}

}  // namespace headrace

#include "src/checkpoint/slice_reader.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "headrace/errors.h"
#include "headrace/files.h"
#include "src/checkpoint/checkpoint_files.h"

namespace headrace {
namespace {

constexpr Bytes buffer_alignment = 4096;

std::uint64_t largest_slice(const Manifest& manifest) {
  std::uint64_t largest = 0;
  for (const ManifestSlice& slice : manifest.slices) largest = std::max(largest, slice.numel);
  return largest;
}

Bytes buffer_bytes(const StoredArray& array, std::uint64_t numel) {
  return round_up(array.bytes_of(numel), buffer_alignment);
}

}  // namespace

Bytes SliceReader::memory_bytes(const Manifest& manifest) {
  Bytes bytes = 0;
  for (const StoredArray& array : stored_arrays(manifest.states))
    bytes += buffer_bytes(array, largest_slice(manifest));
  return bytes;
}

SliceReader::SliceReader(const std::string& folder, Manifest manifest, IoEngine& engine,
                         std::span<std::byte> memory, What what, Rebuilding rebuilding)
    : folder_(folder),
      manifest_(std::move(manifest)),
      engine_(engine),
      arrays_(stored_arrays(manifest_.states)),
      read_arrays_(what == What::masters_alone ? 1 : arrays_.size()),
      files_(manifest_.files.size()),
      rebuilding_(std::move(rebuilding)),
      damaged_(manifest_.file_count()) {
  check_files(rebuilding_.needed);
  if (!manifest_.problem.empty() && rebuilding_.on_damage) rebuilding_.on_damage(manifest_.problem);
  index_slices();
  for (const StoredArray& array : arrays_) {
    const Bytes bytes = buffer_bytes(array, largest_slice(manifest_));
    buffers_.push_back(memory.first(bytes));
    memory = memory.subspan(bytes);
  }
  for (std::size_t a = 0; a < arrays_.size(); ++a) {
    const StoredArray& array = arrays_[a];
    if (array.moment < 0) {
      loaded_states_.master = buffers_[a].data();
    } else {
      MomentArray& moment = loaded_states_.moments[static_cast<std::size_t>(array.moment)];
      if (array.scales)
        moment.scales = reinterpret_cast<float*>(buffers_[a].data());
      else
        moment.values = buffers_[a].data();
    }
  }
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

IoTicket SliceReader::submit(std::size_t array, const ManifestSlice& slice) {
  const IoFile* from = file(slice.file);
  if (from == nullptr) return {};
  return engine_.submit(IoDirection::read, *from, slice.begin, HostLease::borrowed(buffers_[array]),
                        arrays_[array].bytes_of(slice.numel));
}

void SliceReader::load(std::uint32_t parameter, std::size_t piece) {
  const std::uint32_t wanted = pieces_[parameter][piece];
  if (wanted == loaded_) return;
  loaded_ = ~0u;
  std::vector<IoTicket> tickets;
  const auto slice_of = [&](std::size_t array) -> const ManifestSlice& {
    return manifest_.slices[others_[wanted][array]];
  };
  for (std::size_t a = 0; a < read_arrays_; ++a) tickets.push_back(submit(a, slice_of(a)));
  for (std::size_t a = 0; a < read_arrays_; ++a) check(a, slice_of(a), tickets[a]);
  loaded_ = wanted;
}

void SliceReader::check(std::size_t array, const ManifestSlice& slice, IoTicket& ticket) {
  if (!ticket) return rebuild(array, slice);
  const Bytes bytes = arrays_[array].bytes_of(slice.numel);
  const IoResult result = ticket.wait();
  const bool good = result.ok() && crc32c(buffers_[array].first(bytes)) == slice.crc32c;
  if (good) return;
  if (manifest_.parity) return rebuild(array, slice);
  const std::string path = files::join(folder_, manifest_.files[slice.file].name);
  if (!result.ok())
    throw IoError("read", path, slice.begin + result.bytes, bytes - result.bytes, result.code);
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
void SliceReader::rebuild(std::size_t array, const ManifestSlice& slice) {
  const Bytes stripe_bytes = manifest_.parity->stripe_bytes, bytes = arrays_[array].bytes_of(slice.numel);
  const std::span<std::byte> out = buffers_[array].first(bytes);
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

void SliceReader::read(std::uint32_t parameter, std::uint64_t first, std::uint64_t numel,
                       const Visit& visit) {
  const std::vector<std::uint32_t>& pieces = pieces_[parameter];
  const auto behind = std::ranges::upper_bound(
      pieces, first, {}, [&](std::uint32_t slice) { return manifest_.slices[slice].first; });
  for (auto piece = static_cast<std::size_t>(behind - pieces.begin()) - 1; numel > 0; ++piece) {
    load(parameter, piece);
    const ManifestSlice& slice = manifest_.slices[pieces[piece]];
    const std::uint64_t at = first - slice.first, count = std::min(numel, slice.numel - at);
    visit(at, count, loaded_states_);
    first += count;
    numel -= count;
  }
}

}  // namespace headrace

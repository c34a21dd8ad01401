#include "src/checkpoint/slice_reader.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <tuple>

#include "headrace/errors.h"
#include "headrace/files.h"

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
                         std::span<std::byte> memory, What what, const std::vector<bool>& needed)
    : folder_(folder),
      manifest_(std::move(manifest)),
      engine_(engine),
      arrays_(stored_arrays(manifest_.states)),
      read_arrays_(what == What::masters_alone ? 1 : arrays_.size()),
      files_(manifest_.files.size()) {
  check_files(needed);
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

void SliceReader::check_files(const std::vector<bool>& needed) const {
  std::vector<std::string> problems;
  for (std::size_t f = 0; f < manifest_.files.size(); ++f) {
    if (!needed.empty() && !needed[f]) continue;
    const ManifestFile& one = manifest_.files[f];
    std::error_code error;
    const Bytes bytes = std::filesystem::file_size(files::join(folder_, one.name), error);
    if (error)
      problems.push_back(fmt::format("{} is missing ({})", one.name, error.message()));
    else if (bytes != one.bytes)
      problems.push_back(fmt::format("{} has {} bytes of {}", one.name, bytes, one.bytes));
  }
  if (problems.empty()) return;
  throw CorruptData(
      fmt::format("the checkpoint {} is not whole: {}. Bring the files back (each rank of a run "
                  "writes one, on its own host's disk where the folder is not shared), or load "
                  "another checkpoint.",
                  folder_, fmt::join(problems, "; ")));
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

IoFile& SliceReader::file(std::uint32_t index) {
  if (!files_[index])
    files_[index] = IoFile::open(files::join(folder_, manifest_.files[index].name), IoFile::Mode::read_only);
  return *files_[index];
}

void SliceReader::load(std::uint32_t parameter, std::size_t piece) {
  const std::uint32_t wanted = pieces_[parameter][piece];
  if (wanted == loaded_) return;
  loaded_ = ~0u;
  std::vector<IoTicket> tickets;
  for (std::size_t a = 0; a < read_arrays_; ++a) {
    const ManifestSlice& slice = manifest_.slices[others_[wanted][a]];
    tickets.push_back(engine_.submit(IoDirection::read, file(slice.file), slice.begin,
                                     HostLease::borrowed(buffers_[a]), arrays_[a].bytes_of(slice.numel)));
  }
  for (std::size_t a = 0; a < read_arrays_; ++a) {
    const ManifestSlice& slice = manifest_.slices[others_[wanted][a]];
    const Bytes bytes = arrays_[a].bytes_of(slice.numel);
    const std::string& path = file(slice.file).path();
    const IoResult result = tickets[a].wait();
    if (!result.ok())
      throw IoError("read", path, slice.begin + result.bytes, bytes - result.bytes, result.code);
    if (crc32c(buffers_[a].first(bytes)) != slice.crc32c)
      throw CorruptData(fmt::format(
          "{} is damaged: {} of {}, elements {} to {}, at byte {}, is not what was written. Load another "
          "checkpoint.",
          path, arrays_[a].name, manifest_.parameters[parameter].name, slice.first, slice.first + slice.numel,
          slice.begin));
  }
  loaded_ = wanted;
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

// Looks at a checkpoint's files: sizes always, every byte where asked.
#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <filesystem>
#include <memory>

#include "headrace/checkpoint_report.h"
#include "headrace/errors.h"
#include "headrace/files.h"
#include "headrace/state_hash.h"
#include "src/checkpoint/open_manifest.h"
#include "src/checkpoint/slice_reader.h"

namespace headrace {
namespace {

constexpr Bytes memory_alignment = 4096;

struct Free {
  void operator()(std::byte* memory) const { std::free(memory); }
};
using AlignedMemory = std::unique_ptr<std::byte, Free>;

AlignedMemory aligned_memory(Bytes bytes) {
  AlignedMemory memory(static_cast<std::byte*>(
      std::aligned_alloc(memory_alignment, round_up(std::max(bytes, memory_alignment), memory_alignment))));
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

// A stretch of a file with a checksum of its own.
struct Part {
  std::uint32_t file = 0, crc32c = 0;
  Bytes begin = 0, bytes = 0;
  std::string what;
};

class Inspection {
 public:
  Inspection(const std::string& path, const InspectOptions& options, IoEngine& engine,
             const InspectControl& control)
      : path_(path), options_(options), engine_(engine), control_(control), manifest_(open_manifest(path)) {
    arrays_ = stored_arrays(manifest_.states);
  }

  CheckpointReport run() {
    describe();
    if (options_.verify || options_.hash) check_parts();
    if (options_.hash && report_.good() && !report_.stopped) hash();
    return std::move(report_);
  }

 private:
  void describe() {
    report_.facts = facts_of(manifest_, path_);
    report_.parameters = manifest_.parameters.size();
    report_.slices = manifest_.slices.size();
    for (const ManifestParameter& one : manifest_.parameters) report_.parameter_numel += one.numel();
    for (std::uint32_t f = 0; f < manifest_.files.size(); ++f) {
      const ManifestFile& one = manifest_.files[f];
      report_.files.push_back({.name = one.name, .rank = f, .bytes = one.bytes});
      report_.bytes += one.bytes;
      look_at(report_.files.back());
    }
    for (const ManifestSlice& slice : manifest_.slices) {
      ++report_.files[slice.file].slices;
      report_.files[slice.file].states_bytes += arrays_[slice.array].bytes_of(slice.numel);
    }
  }

  void look_at(CheckpointFile& file) {
    std::error_code error;
    const Bytes bytes = std::filesystem::file_size(files::join(path_, file.name), error);
    if (error) {
      file.state = CheckpointFile::State::missing;
      report_.problems.push_back(
          fmt::format("{}, of rank {}, is missing: {}.", file.name, file.rank, error.message()));
    } else if (bytes != file.bytes) {
      file.state = CheckpointFile::State::other_size;
      report_.problems.push_back(
          fmt::format("{}, of rank {}, has {} bytes of {}.", file.name, file.rank, bytes, file.bytes));
    }
  }

  std::vector<Part> parts() const {
    std::vector<Part> parts;
    for (std::uint32_t f = 0; f < manifest_.files.size(); ++f)
      parts.push_back(
          {f, manifest_.files[f].header_crc32c, 0, manifest_.files[f].header_bytes, "its header"});
    for (const ManifestSlice& slice : manifest_.slices)
      parts.push_back({slice.file, slice.crc32c, slice.begin, arrays_[slice.array].bytes_of(slice.numel),
                       fmt::format("{} of {} from element {} on", arrays_[slice.array].name,
                                   manifest_.parameters[slice.parameter].name, slice.first)});
    std::erase_if(parts, [&](const Part& part) {
      return report_.files[part.file].state != CheckpointFile::State::unchecked;
    });
    std::ranges::stable_sort(parts, {}, [](const Part& part) { return std::pair(part.file, part.begin); });
    return parts;
  }

  // In the order of the files, some ahead.
  void check_parts() {
    constexpr std::size_t ahead = 4;
    const std::vector<Part> all = parts();
    Bytes largest = 0, total = 0;
    for (const Part& part : all) largest = std::max(largest, part.bytes), total += part.bytes;
    largest = round_up(largest, memory_alignment);
    const AlignedMemory memory = aligned_memory(largest * ahead);
    std::vector<std::unique_ptr<IoFile>> open(manifest_.files.size());
    std::deque<IoTicket> tickets;
    std::size_t next = 0;
    for (std::size_t p = 0; p < all.size() && !report_.stopped; ++p) {
      for (; next < all.size() && next < p + ahead; ++next) {
        const Part& part = all[next];
        if (!open[part.file])
          open[part.file] = std::make_unique<IoFile>(
              IoFile::open(files::join(path_, manifest_.files[part.file].name), IoFile::Mode::read_only));
        tickets.push_back(engine_.submit(
            IoDirection::read, *open[part.file], part.begin,
            HostLease::borrowed({memory.get() + next % ahead * largest, largest}), part.bytes));
      }
      check(all[p], tickets.front().wait(), {memory.get() + p % ahead * largest, all[p].bytes});
      tickets.pop_front();
      if (control_.progress) control_.progress(report_.checked_bytes, total);
      report_.stopped = p + 1 < all.size() && control_.stop_requested && control_.stop_requested();
    }
    if (report_.stopped) return;
    for (CheckpointFile& file : report_.files)
      if (file.state == CheckpointFile::State::unchecked) file.state = CheckpointFile::State::good;
  }

  void check(const Part& part, const IoResult& result, std::span<const std::byte> bytes) {
    CheckpointFile& file = report_.files[part.file];
    if (result.ok() && crc32c(bytes) == part.crc32c) {
      report_.checked_bytes += part.bytes;
      return;
    }
    file.state = CheckpointFile::State::damaged;
    report_.problems.push_back(
        result.ok()
            ? fmt::format("{}, of rank {}: {}, at byte {}, is not what was written.", file.name, file.rank,
                          part.what, part.begin)
            : IoError("read", files::join(path_, file.name), part.begin, part.bytes, result.code).what());
  }

  void hash() {
    const AlignedMemory memory = aligned_memory(SliceReader::memory_bytes(manifest_));
    SliceReader reader(path_, manifest_, engine_, {memory.get(), SliceReader::memory_bytes(manifest_)});
    std::uint64_t sum = 0;
    for (std::uint32_t p = 0; p < manifest_.parameters.size(); ++p) {
      std::uint64_t first = 0;
      reader.read(p, 0, manifest_.parameters[p].numel(),
                  [&](std::uint64_t at, std::uint64_t numel, const StateArrays& states) {
                    sum +=
                        hash_states(manifest_.parameters[p].name, first, manifest_.states, states, at, numel);
                    first += numel;
                  });
    }
    const TrainingState& state = report_.facts.state;
    report_.state_hash = finish_state_hash(sum, report_.facts.steps_applied, state.rng_state,
                                           state.loss_scale.scale, state.data_position);
  }

  std::string path_;
  InspectOptions options_;
  IoEngine& engine_;
  const InspectControl& control_;
  Manifest manifest_;
  std::vector<StoredArray> arrays_;
  CheckpointReport report_;
};

}  // namespace

bool is_checkpoint(const std::string& path) {
  std::error_code unseen;  // what may not be looked at is none, as far as can be told
  return std::filesystem::exists(files::join(path, manifest_name), unseen);
}

CheckpointReport inspect_checkpoint(const std::string& path, const InspectOptions& options, IoEngine& engine,
                                    const InspectControl& control) {
  return Inspection(path, options, engine, control).run();
}

}  // namespace headrace

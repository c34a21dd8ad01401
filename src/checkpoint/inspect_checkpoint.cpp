// Looks at a checkpoint's files: sizes always, every byte where asked.
#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <memory>

#include "headrace/checkpoint_report.h"
#include "headrace/errors.h"
#include "headrace/files.h"
#include "headrace/state_hash.h"
#include "src/checkpoint/checkpoint_files.h"
#include "src/checkpoint/checkpoint_stripes.h"
#include "src/checkpoint/inspect_pinned.h"
#include "src/checkpoint/open_manifest.h"
#include "src/checkpoint/parity.h"
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

std::string owner_of(const CheckpointFile& file) {
  return file.is_parity ? "of parity" : fmt::format("of rank {}", file.rank);
}

class Inspection {
 public:
  Inspection(const std::string& path, Manifest manifest, const InspectOptions& options, IoEngine& engine,
             const InspectControl& control)
      : path_(path), options_(options), engine_(engine), control_(control), manifest_(std::move(manifest)) {
    arrays_ = stored_arrays(manifest_.states);
  }

  CheckpointReport run() {
    describe();
    look_at_manifests();
    const bool all = options_.verify || options_.hash;
    if (!all)
      look_at_headers();
    else if (manifest_.parity)
      check_stripes();
    else
      check_parts(parts());
    if (!report_.good() && manifest_.parity && !report_.stopped) say_whether_whole(all);
    if (options_.hash && (report_.good() || whole_by_parity_) && !report_.stopped) hash();
    if (all && !report_.stopped) mark_good();
    return std::move(report_);
  }

 private:
  void describe() {
    report_.facts = facts_of(manifest_, path_);
    report_.parameters = manifest_.parameters.size();
    report_.slices = manifest_.slices.size();
    for (const ManifestParameter& one : manifest_.parameters) report_.parameter_numel += one.numel();
    report_.parity = manifest_.parity_rows();
    const auto ranks = static_cast<std::uint32_t>(manifest_.files.size());
    for (std::uint32_t f = 0; f < manifest_.file_count(); ++f) {
      const ManifestFile& one = manifest_.file(f);
      report_.files.push_back({.name = one.name,
                               .rank = f < ranks ? f : writer_of_parity(f - ranks, ranks),
                               .is_parity = f >= ranks,
                               .bytes = one.bytes});
      report_.bytes += one.bytes;
    }
    for (const FileProblem& problem : look_at_files(path_, manifest_)) {
      CheckpointFile& file = report_.files[problem.file];
      file.state = problem.missing ? CheckpointFile::State::missing : CheckpointFile::State::other_size;
      report_.problems.push_back(fmt::format("{}, {}, {}.", file.name, owner_of(file), problem.what));
    }
    for (const ManifestSlice& slice : manifest_.slices) {
      ++report_.files[slice.file].slices;
      report_.files[slice.file].states_bytes += arrays_[slice.array].bytes_of(slice.numel);
    }
  }

  // Two where there is parity, the same.
  void look_at_manifests() {
    if (!manifest_.problem.empty()) {
      report_.problems.push_back(manifest_.problem + ".");
    } else if (manifest_.parity) {
      const ManifestText copy = read_manifest(path_, manifest_copy_name);
      if (!copy.problem.empty())
        report_.problems.push_back(fmt::format("{} {}.", manifest_copy_name, copy.problem));
    }
  }

  std::vector<Part> headers() const {
    std::vector<Part> parts;
    for (std::uint32_t f = 0; f < manifest_.files.size(); ++f)
      if (report_.files[f].state == CheckpointFile::State::unchecked)
        parts.push_back(
            {f, manifest_.files[f].header_crc32c, 0, manifest_.files[f].header_bytes, "its header"});
    return parts;
  }

  std::vector<Part> parts() const {
    std::vector<Part> parts = headers();
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
  void check_parts(const std::vector<Part>& all) {
    constexpr std::size_t ahead = 4;
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
  }

  void look_at_headers() {
    check_parts(headers());
    report_.checked_bytes = 0;  // too little to be told of
  }

  void mark_good() {
    for (CheckpointFile& file : report_.files)
      if (file.state == CheckpointFile::State::unchecked) file.state = CheckpointFile::State::good;
  }

  struct Damage {
    std::uint64_t stripes = 0;
    std::string first;
  };

  // A line a file, however much of it is damaged.
  void check_stripes() {
    const Bytes bytes = CheckpointStripes::memory_bytes(manifest_);
    const AlignedMemory memory = aligned_memory(bytes);
    CheckpointStripes stripes(path_, manifest_, engine_, {memory.get(), bytes});
    std::vector<Damage> damage(manifest_.file_count());
    for (std::uint64_t s = 0; s < stripes.count() && !report_.stopped; ++s) {
      const std::vector<CheckpointStripes::Bad>& bad = stripes.read(s);
      for (std::uint32_t f = 0; f < damage.size(); ++f) report_.checked_bytes += stripes.piece(f).size();
      for (const CheckpointStripes::Bad& one : bad) {
        report_.checked_bytes -= stripes.piece(one.file).size();
        if (damage[one.file].stripes++ == 0) damage[one.file].first = one.what;
      }
      lost_stripes_ += bad.size() > manifest_.parity_rows() ? 1 : 0;
      if (control_.progress) control_.progress(report_.checked_bytes, report_.bytes);
      report_.stopped = s + 1 < stripes.count() && control_.stop_requested && control_.stop_requested();
    }
    for (std::uint32_t f = 0; f < damage.size(); ++f) {
      CheckpointFile& file = report_.files[f];
      if (damage[f].stripes == 0 || file.state != CheckpointFile::State::unchecked) continue;
      file.state = CheckpointFile::State::damaged;
      report_.problems.push_back(fmt::format(
          "{}, {}, {}{}.", file.name, owner_of(file), damage[f].first,
          damage[f].stripes == 1 ? "" : fmt::format(", and in {} more places", damage[f].stripes - 1)));
    }
  }

  void say_whether_whole(bool all_was_read) {
    const auto damaged =
        static_cast<std::uint32_t>(std::ranges::count_if(report_.files, [](const CheckpointFile& file) {
          return file.state != CheckpointFile::State::unchecked && file.state != CheckpointFile::State::good;
        }));
    whole_by_parity_ = all_was_read ? lost_stripes_ == 0 : damaged <= manifest_.parity_rows();
    std::string& last = report_.problems.back();
    if (whole_by_parity_ && all_was_read)
      last +=
          fmt::format(" The checkpoint is whole by its parity: {} rebuilds the files.", repair_text(path_));
    else if (whole_by_parity_)
      last += fmt::format(
          " Its parity makes up for that if all else is good: {} reads everything, and rebuilds the files.",
          repair_text(path_));
    else if (all_was_read)
      last += fmt::format(
          " In {} of its stripes more than {} of the files are damaged, which parity does not make up for. "
          "Load another checkpoint.",
          lost_stripes_, manifest_.parity_rows());
    else
      last += fmt::format(
          " Its parity makes up for {} of the files in any place: --verify says whether that "
          "is enough.",
          manifest_.parity_rows());
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
            ? fmt::format("{}, {}: {}, at byte {}, is not what was written.", file.name, owner_of(file),
                          part.what, part.begin)
            : IoError("read", files::join(path_, file.name), part.begin, part.bytes, result.code).what());
  }

  void hash() {
    const AlignedMemory memory = aligned_memory(SliceReader::memory_bytes(manifest_));
    SliceReader reader(path_, manifest_, engine_, {memory.get(), SliceReader::memory_bytes(manifest_)});
    std::vector<ParameterRange> whole;
    for (std::uint32_t p = 0; p < manifest_.parameters.size(); ++p)
      whole.push_back({p, 0, manifest_.parameters[p].numel()});
    reader.expect(std::move(whole));
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
  std::uint64_t lost_stripes_ = 0;  // that parity does not make up for
  bool whole_by_parity_ = false;
};

}  // namespace

CheckpointReport inspect_checkpoint(const std::string& path, const InspectOptions& options, IoEngine& engine,
                                    const InspectControl& control) {
  Manifest manifest = open_manifest(path);
  if (manifest.is_pinned()) return inspect_pinned(path, manifest, options, engine, control);
  return Inspection(path, std::move(manifest), options, engine, control).run();
}

}  // namespace headrace

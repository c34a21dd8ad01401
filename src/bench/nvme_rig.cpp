#include "src/bench/nvme_rig.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <latch>
#include <random>
#include <thread>

#include "headrace/block_device.h"
#include "headrace/errors.h"
#include "headrace/folders.h"
#include "src/bench/path_failure.h"
#include "src/bench/storage_facts.h"

namespace headrace {
namespace {

namespace fs = std::filesystem;
using namespace literals;

// Preparation moves blocks of its own choice, enough for a drive's rate, and few: they end late where the
// drive is slow. The pool has buffers for them.
constexpr Bytes preparation_block = 1_MiB;
constexpr std::uint32_t preparation_depth = 8;

constexpr Bytes probed_bytes = 16_MiB;  // of a file, for pages that stay in memory
constexpr Bytes flush_every = 128_MiB;  // of a buffered file in preparation: a late flush has no end

// A rate is not believed beyond what the drive's link carries, or so often what memory copies reach: a copy
// reads and writes memory, a drive only writes it, and other programs may have slowed the copies.
constexpr double link_tolerance = 1.05, memory_tolerance = 2;

Bytes buffer_bytes_of(const NvmeBenchOptions& options) {
  return std::max(*std::max_element(options.blocks.begin(), options.blocks.end()), preparation_block);
}
std::uint32_t largest_depth_of(const NvmeBenchOptions& options) {
  return std::max(*std::max_element(options.depths.begin(), options.depths.end()), preparation_depth);
}

Bytes free_bytes_of(const std::string& folder) {
  std::error_code error;
  const fs::space_info space = fs::space(folder, error);
  return error ? 0 : space.available;
}

std::uint64_t device_of(int fd) {
  struct stat status {};
  return ::fstat(fd, &status) == 0 ? status.st_dev : 0;
}

DoesNotFit disk_too_small(const std::string& folder, const NvmeBenchOptions& options, Bytes least,
                          const FileSpace& space) {
  const std::string what =
      options.file_bytes != 0
          ? fmt::format("a file of {} (--file-size; at least {})", format_bytes(options.file_bytes),
                        size_text(least))
          : fmt::format("a file of {}, so that {} blocks of {} are in flight", format_bytes(least),
                        options.depths.back(), size_text(options.blocks.back()));
  return DoesNotFit(fmt::format(
      "--path {}: the benchmark needs {}, and {} are free there{}. Free some space, give a folder on "
      "a larger disk, or smaller --block, --depth or --file-size.",
      folder, what, format_bytes(space.free_bytes),
      space.memory_bytes ? fmt::format(", all of it memory, of which {} are available and half may be used",
                                       format_bytes(*space.memory_bytes))
                         : ""));
}

double gigabytes_per_second(Bytes bytes, double seconds) {
  return seconds > 0 ? static_cast<double>(bytes) / seconds * 1e-9 : 0;
}

}  // namespace

Bytes nvme_bench_memory(Bytes largest_block, std::uint32_t largest_depth, std::size_t paths) {
  const Bytes buffer = round_up(std::max(largest_block, preparation_block), nvme_block_quantum);
  return buffer * (std::max(largest_depth, preparation_depth) + Bytes{1}) * paths;
}

// Paths may be on one device.
IoEngineOptions nvme_engine_options(const NvmeBenchOptions& options) {
  const Bytes requests = divide_up(buffer_bytes_of(options), least_request_bytes) *
                         largest_depth_of(options) * options.paths.size();
  return {.queue_depth = static_cast<std::uint32_t>(std::min<Bytes>(requests, most_queue_depth))};
}

Bytes RigSample::read_bytes() const {
  Bytes total = 0;
  for (const StreamSample& stream : streams) total += stream.read_bytes;
  return total;
}

Bytes RigSample::bytes() const {
  Bytes total = 0;
  for (const StreamSample& stream : streams) total += stream.bytes();
  return total;
}

double RigSample::rate() const {
  double total = 0;
  for (const StreamSample& stream : streams) total += gigabytes_per_second(stream.bytes(), stream.seconds);
  return total;
}

NvmeRig::NvmeRig(IoEngine& io, MemoryBudget& host, const NvmeBenchOptions& options,
                 const NvmeControl& control, Bytes usual_file_bytes)
    : io_(io),
      options_(options),
      control_(control),
      pattern_((static_cast<std::uint64_t>(std::random_device{}()) << 32) + std::random_device{}()),
      buffer_bytes_(buffer_bytes_of(options)),
      buffers_(largest_depth_of(options) + 1),
      pool_(host, MemoryTag::staging, buffer_bytes_,
            buffers_ * static_cast<std::uint32_t>(options.paths.size())),
      registration_(io.register_memory(pool_.memory())) {
  std::memset(pool_.memory().data(), 0, pool_.memory().size());  // no first touch in a sample
  memory_rate_ = memory_copy_rate(pool_.memory());
  open_paths(usual_file_bytes);
  make_streams();
}

void NvmeRig::open_paths(Bytes usual_file_bytes) {
  require_different_folders("--path", options_.paths);
  for (const std::string& folder : options_.paths) paths_.push_back(open_path(folder));
  const Bytes least = least_file_bytes(buffer_bytes_, buffers_ - 1);
  if (options_.file_bytes != 0 && round_up(options_.file_bytes, preparation_block) < least)
    throw UsageError(fmt::format(
        "--file-size {} is too small: at least {}, for the blocks in flight. Or give smaller --block or "
        "--depth.",
        size_text(options_.file_bytes), size_text(least)));
  for (PathState& path : paths_) {
    const FileSpace space = space_of(path);
    const auto chosen =
        choose_file_bytes(options_.file_bytes, usual_file_bytes, least, preparation_block, space);
    if (!chosen) throw disk_too_small(path.folder, options_, least, space);
    path.facts.file_bytes = *chosen;
  }
  for (PathState& path : paths_)
    if (!path.scratch->reserve(path.facts.file_bytes))
      throw disk_too_small(path.folder, options_, least, space_of(path));
}

NvmeRig::PathState NvmeRig::open_path(const std::string& folder) {
  require_usable_folder("--path", folder, "on the drive to measure");
  remove_leftover_files(folder);
  PathState path{
      .folder = folder, .scratch = std::make_unique<ScratchFile>(folder), .stream = nullptr, .facts = {}};
  const IoFile& file = path.scratch->file();
  for (const Bytes block : options_.blocks)
    if (block % file.offset_alignment() != 0)
      throw UsageError(fmt::format("--block {}: direct I/O in {} needs multiples of {}.", size_text(block),
                                   folder, size_text(file.offset_alignment())));
  const DriveFacts facts = drive_facts(file.fd());
  path.facts = {.path = folder,
                .file_system = facts.file_system,
                .drive = facts.drive,
                .link_rate = facts.link_rate,
                .direct = file.direct()};
  path.device = device_of(file.fd());
  path.shape = io_shape(io_.name(), options_.engine, file.id().device);
  path.memory_file_system = lies_in_memory(folder);
  return path;
}

// Paths on one file system share its space.
FileSpace NvmeRig::space_of(const PathState& path) const {
  const auto sharing = static_cast<Bytes>(std::count_if(
      paths_.begin(), paths_.end(), [&](const PathState& other) { return other.device == path.device; }));
  FileSpace space{.free_bytes = free_bytes_of(path.folder) / sharing};
  if (path.memory_file_system) space.memory_bytes = available_host_memory() / sharing;
  return space;
}

void NvmeRig::make_streams() {
  for (PathState& path : paths_)
    path.stream = std::make_unique<BlockStream>(io_, *path.scratch, pattern_, pool_, buffers_,
                                                options_.check_every_byte);
}

FileSet NvmeRig::all_files() const {
  FileSet files(paths_.size());
  for (std::size_t f = 0; f < files.size(); ++f) files[f] = f;
  return files;
}

Bytes NvmeRig::smallest_file_bytes() const {
  Bytes smallest = ~Bytes{0};
  for (const PathState& path : paths_) smallest = std::min(smallest, path.facts.file_bytes);
  return smallest;
}

double NvmeRig::longest_preparation() const {
  double longest = 0;
  for (const PathState& path : paths_) longest = std::max(longest, path.facts.prepare_seconds);
  return longest;
}

double NvmeRig::blocks_in_flight(const FileSet& files, const BlockWork& work) const {
  double least = work.depth;
  for (const std::size_t f : files) {
    const auto sharing = static_cast<std::size_t>(std::count_if(
        files.begin(), files.end(), [&](std::size_t g) { return paths_[g].device == paths_[f].device; }));
    least = std::min(least, headrace::blocks_in_flight(work, paths_[f].shape, sharing));
  }
  return least;
}

std::string NvmeRig::in_flight_note(const FileSet& files, const BlockWork& work) const {
  const double blocks = blocks_in_flight(files, work);
  if (blocks >= work.depth) return "";
  const IoShape& shape = paths_[files.front()].shape;
  return fmt::format(
      "{} depth {}{}: {:.4g} blocks at a time are at a drive, for {} has {} requests of {} there",
      size_text(work.block_bytes), work.depth,
      files.size() > 1 ? fmt::format(" on each of {} paths", files.size()) : "", blocks, io_.name(),
      shape.queue_depth, size_text(shape.request_bytes));
}

bool NvmeRig::prepare(const Preparation& preparation, const TimeBudget& budget) {
  const FileSet files = all_files();
  std::vector<StreamSample> samples(files.size());
  try {
    at_once(files, [&](std::size_t f) { samples[f] = write_once(f, preparation, budget); });
    if (stop_requested()) return false;
    slowest_write_rate_ = 1e15;
    for (const std::size_t f : files) {
      at_once({f}, [&](std::size_t) { finish_preparation(paths_[f], samples[f]); });
      find_where_reads_come_from(f);
    }
  } catch (const PathFailure& failure) {
    if (failure.is_full()) throw DoesNotFit(failure.what());
    throw;
  }
  return true;
}

StreamSample NvmeRig::write_once(std::size_t file, const Preparation& wanted, const TimeBudget& budget) {
  static_assert(preparation_depth >= 2);  // a file of so many blocks can be read, however slow its drive
  PathState& path = paths_[file];
  const TimeBudget preparation(wanted.seconds);
  const BlockWork work{
      .operation = NvmeOperation::write, .block_bytes = preparation_block, .depth = preparation_depth};
  const Bytes others = work.in_flight_bytes() - work.block_bytes;  // beside a block that has ended
  Bytes flushed = 0;
  StreamSample sample = path.stream->prepare(work, path.facts.file_bytes, [&](Bytes moved) {
    if (!path.facts.direct && moved - flushed >= flush_every)
      path.scratch->file().sync_data(), flushed = moved;
    if (file == 0 && control_.progress)
      control_.progress(std::min(budget.spent() / budget.seconds(), 1.0),
                        fmt::format("writing the file once: {} of {} in {}", format_bytes(moved),
                                    format_bytes(path.facts.file_bytes), path.folder));
    const bool enough = moved + others >= wanted.least_bytes;
    const double spent = preparation.spent();
    const double left = (enough ? wanted.seconds : wanted.most_seconds) - spent;
    return !failed_ && !stop_requested() && left > drain_seconds(others, moved, spent);
  });
  return sample;
}

void NvmeRig::finish_preparation(PathState& path, const StreamSample& sample) {
  const Bytes wanted = path.facts.file_bytes;
  path.facts.file_bytes = sample.written_bytes;
  path.facts.prepare_seconds = sample.seconds;
  path.scratch->shrink(sample.written_bytes);
  written_bytes_ += sample.written_bytes;
  const double rate = static_cast<double>(sample.written_bytes) / sample.seconds;
  slowest_write_rate_ = std::min(slowest_write_rate_, rate);
  if (!control_.say) return;
  control_.say(fmt::format("{}: {} written once in {:.1f} s ({:.2f} GB/s){}", path.folder,
                           format_bytes(sample.written_bytes), sample.seconds, rate * 1e-9,
                           sample.written_bytes < wanted
                               ? fmt::format(", not {}: the time for it was over", format_bytes(wanted))
                               : ""));
}

// One block is read after the page cache was asked to forget the file: it stays in memory where the file
// system is memory, and the kernel counts it where reads can be counted.
void NvmeRig::find_where_reads_come_from(std::size_t file) {
  PathState& path = paths_[file];
  at_once({file}, [&](std::size_t) { path.scratch->evict(); });
  path.in_memory = path.memory_file_system ||
                   path.scratch->resident_share(std::min(path.facts.file_bytes, probed_bytes)) > 0.5;
  const BlockWork one{.operation = NvmeOperation::read, .block_bytes = preparation_block, .depth = 1};
  const RigSample sample = run({file}, one, [](std::size_t, Bytes) { return false; });
  path.reads_are_counted = sample.from_storage && *sample.from_storage >= sample.read_bytes() / 2;
}

void NvmeRig::at_once(const FileSet& files, const std::function<void(std::size_t index)>& body) {
  std::vector<std::exception_ptr> errors(files.size());
  failed_ = false;
  const auto guarded = [&](std::size_t index) {
    try {
      body(index);
    } catch (const IoError& error) {
      const std::size_t file = files[index];
      errors[index] = std::make_exception_ptr(PathFailure(file, paths_[file].folder, error));
      failed_ = true;
    } catch (...) {
      errors[index] = std::current_exception();
      failed_ = true;
    }
  };
  {
    std::latch together(static_cast<std::ptrdiff_t>(files.size()));
    std::vector<std::jthread> threads;
    for (std::size_t i = 1; i < files.size(); ++i)
      threads.emplace_back([&, i] {
        together.arrive_and_wait();
        guarded(i);
      });
    together.arrive_and_wait();
    guarded(0);
  }
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);
}

RigSample NvmeRig::run(const FileSet& files, const BlockWork& work, const GoOn& go_on) {
  const auto direct = [&](std::size_t file) { return paths_[file].facts.direct; };
  if (work.reads() && !std::all_of(files.begin(), files.end(), direct))
    at_once(files, [&](std::size_t index) {
      if (!direct(files[index])) paths_[files[index]].scratch->evict();
    });
  RigSample sample{.streams = std::vector<StreamSample>(files.size()), .from_storage = std::nullopt};
  const std::optional<Bytes> counted = bytes_read_from_storage();
  const double cpu = process_cpu_seconds();
  at_once(files, [&](std::size_t index) {
    const std::size_t file = files[index];
    sample.streams[index] = paths_[file].stream->run(
        work, [&](Bytes moved) { return !failed_ && !stop_requested() && go_on(file, moved); });
  });
  sample.cpu_seconds = process_cpu_seconds() - cpu;
  if (counted) sample.from_storage = bytes_read_from_storage().value_or(*counted) - *counted;
  for (const StreamSample& stream : sample.streams) {
    sample.cpu_seconds = std::max(sample.cpu_seconds - stream.pattern_cpu_seconds, 0.0);
    written_bytes_ += stream.written_bytes;
  }
  return sample;
}

void NvmeRig::flush_buffered(std::size_t file) {
  if (!paths_[file].facts.direct) paths_[file].scratch->file().sync_data();
}

void NvmeRig::check_written(const FileSet& files) {
  at_once(files, [&](std::size_t index) { paths_[files[index]].stream->check_written(); });
}

NvmeSource NvmeRig::source(const FileSet& files, double rate, std::optional<double> from_storage) const {
  SourceEvidence evidence{.from_storage = from_storage, .rate = rate, .highest_rate = std::nullopt};
  double links = 0;
  bool links_known = true;
  for (const std::size_t f : files) {
    const PathState& path = paths_[f];
    evidence.direct &= path.facts.direct;
    evidence.in_memory |= path.in_memory;
    if (!path.reads_are_counted) evidence.from_storage = std::nullopt;
    links += path.facts.link_rate.value_or(0);
    links_known &= path.facts.link_rate.has_value();
  }
  const double memory = memory_tolerance * memory_rate_;
  evidence.highest_rate = links_known ? std::min(link_tolerance * links, memory) : memory;
  return source_of(evidence);
}

NvmeReport NvmeRig::report(const TimeBudget& budget) const {
  NvmeReport report;
  report.engine = io_.name();
  report.registered_buffers = io_.counters().registered_bytes > 0;
  report.memory_rate = memory_rate_;
  report.written_bytes = written_bytes_;
  report.seconds = budget.spent();
  report.stopped = stop_requested();
  const auto in_memory =
      std::count_if(paths_.begin(), paths_.end(), [](const PathState& path) { return path.in_memory; });
  if (in_memory > 0 && in_memory < static_cast<std::ptrdiff_t>(paths_.size()))
    report.notes.emplace_back(
        "\"all paths\" adds up drives and memory: leave out the paths that are memory to know what the "
        "drives "
        "give together");
  for (const PathState& path : paths_) {
    report.paths.push_back(path.facts);
    if (path.in_memory)
      report.notes.push_back(fmt::format("{} is memory ({}): its figures say nothing about a drive",
                                         path.folder, path.facts.file_system));
    else if (!path.facts.direct)
      report.notes.push_back(fmt::format(
          "{} ({}) refuses direct I/O: writes include a flush, and reads begin with the page cache empty",
          path.folder, path.facts.file_system));
    else if (!path.reads_are_counted)
      report.notes.push_back(
          fmt::format("{} ({}): the kernel does not count its reads, so a cache behind it would not be seen",
                      path.folder, path.facts.file_system));
    for (const PathState& other : paths_)
      if (&other < &path && other.device == path.device)
        report.notes.push_back(fmt::format("{} and {} are on one file system: together they share its drive",
                                           other.folder, path.folder));
  }
  return report;
}

}  // namespace headrace

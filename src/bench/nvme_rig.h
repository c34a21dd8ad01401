// What every benchmark of storage stands on: the files of the paths, written once, and a stream over each.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include "headrace/elapsed.h"
#include "headrace/io_shape.h"
#include "src/bench/block_stream.h"
#include "src/bench/nvme_plan.h"

namespace headrace {

// Counts from its making; `seconds` may be used.
class TimeBudget {
 public:
  explicit TimeBudget(double seconds) : seconds_(seconds) {}
  double spent() const { return seconds_since(start_); }
  double left() const { return seconds_ - spent(); }
  double seconds() const { return seconds_; }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  double seconds_;
};

// Files by number, in the order of the paths.
using FileSet = std::vector<std::size_t>;

// Writes the files for `seconds`, or for more where they do not hold `least_bytes` by then.
struct Preparation {
  double seconds = 0, most_seconds = 0;
  Bytes least_bytes = 0;
};

struct RigSample {
  std::vector<StreamSample> streams;  // by file of the set
  double cpu_seconds = 0;             // of the process, without making and checking data
  std::optional<Bytes> from_storage;  // bytes read, by the kernel's count
  Bytes read_bytes() const;
  Bytes bytes() const;
  double rate() const;  // GB/s, the sum of the streams'
};

// What is done to a file and fails throws PathFailure; the others end what they had in flight before.
class NvmeRig {
 public:
  // Makes the files and takes the buffers. `usual_file_bytes` where the options ask for no size.
  NvmeRig(IoEngine& io, MemoryBudget& host, const NvmeBenchOptions& options, const NvmeControl& control,
          Bytes usual_file_bytes);

  // Writes the files, all at once, then finds out what can be known of each path. False when a stop was
  // requested. A drive too slow for `most_seconds` leaves files of less than was asked for.
  bool prepare(const Preparation& preparation, const TimeBudget& budget);

  // One stream a thread, all of them started together; `go_on` is asked on the stream's thread.
  using GoOn = std::function<bool(std::size_t file, Bytes moved)>;
  RigSample run(const FileSet& files, const BlockWork& work, const GoOn& go_on);
  // Waits until what a buffered file holds is on its drive.
  void flush_buffered(std::size_t file);
  // What the run wrote is there.
  void check_written(const FileSet& files);

  FileSet all_files() const;
  Bytes smallest_file_bytes() const;
  double longest_preparation() const;  // seconds
  // Blocks of `work` that each file has at its drive at a time, all of the set at once.
  double blocks_in_flight(const FileSet& files, const BlockWork& work) const;
  // Of such blocks, fewer than the depth: what the reader has to know. "" otherwise.
  std::string in_flight_note(const FileSet& files, const BlockWork& work) const;
  double slowest_write_rate() const { return slowest_write_rate_; }  // bytes a second, in preparation
  bool stop_requested() const { return control_.stop_requested && control_.stop_requested(); }
  // Of what a set of files gave, whether it came from their drives.
  NvmeSource source(const FileSet& files, double rate, std::optional<double> from_storage) const;
  // The part of a report that does not depend on what was measured.
  NvmeReport report(const TimeBudget& budget) const;

 private:
  struct PathState {
    std::string folder;
    std::unique_ptr<ScratchFile> scratch;
    std::unique_ptr<BlockStream> stream;
    NvmePath facts;
    std::uint64_t device = 0;
    IoShape shape = {};
    bool memory_file_system = false;  // by its type
    bool in_memory = false;           // by what stays in memory
    bool reads_are_counted = false;   // /proc/self/io sees reads of this path
  };

  void open_paths(Bytes usual_file_bytes);
  PathState open_path(const std::string& folder);
  FileSpace space_of(const PathState& path) const;
  void make_streams();
  StreamSample write_once(std::size_t file, const Preparation& wanted, const TimeBudget& budget);
  void finish_preparation(PathState& path, const StreamSample& sample);
  void find_where_reads_come_from(std::size_t file);
  // body(index) for each, the first on this thread; rethrows the first error, an IoError as PathFailure.
  void at_once(const FileSet& files, const std::function<void(std::size_t index)>& body);

  IoEngine& io_;
  const NvmeBenchOptions& options_;
  const NvmeControl& control_;
  const DrivePattern pattern_;
  const Bytes buffer_bytes_;
  const std::uint32_t buffers_;  // of each path
  StagingPool pool_;
  const IoRegistration registration_;
  std::vector<PathState> paths_;
  double memory_rate_ = 0, slowest_write_rate_ = 0;
  Bytes written_bytes_ = 0;
  std::atomic<bool> failed_{false};
};

}  // namespace headrace

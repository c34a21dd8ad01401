// Benchmark of storage: what a folder's drive gives the I/O engine, by operation, access, block size and
// depth.
//
// A file a path is written once with noise before anything is timed, then blocks of it move between the drive
// and a staging pool, `depth` in flight. The file loses its name as soon as it is open, so that its space is
// free again however the program ends, kill -9 included; names that a kill in between left are removed at the
// next start. Each 4 KiB of a block that is read are checked for their place, a sample of the blocks byte by
// byte, and some of what each sample wrote is read back: wrong data is an Error that names path and offset.
//
// Time: everything, preparation included, ends within NvmeBenchOptions::seconds, or a tenth more. Cases
// alternate [Note: rounds in bench.h]. The files hold less, and cases are left out (with a note), where the
// time is short. A path that fails on the way ends its own cases alone: what was measured is reported.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/bench.h"
#include "headrace/bytes.h"
#include "headrace/io_engine.h"
#include "headrace/memory.h"

namespace headrace {

enum class NvmeOperation : std::uint8_t { read, write, mixed };
enum class NvmeAccess : std::uint8_t { sequential, random };
// Where the bytes of a case came from: the drive; the drive by way of the page cache; memory (a cache or a
// file system in memory), so that the figure says nothing about a drive.
enum class NvmeSource : std::uint8_t { direct, buffered, cached };
std::string_view name_of(NvmeOperation operation);
std::string_view name_of(NvmeAccess access);
std::string_view name_of(NvmeSource source);

inline constexpr Bytes nvme_block_quantum = 4096;  // blocks are multiples of it

struct NvmeBenchOptions {
  std::vector<std::string> paths;  // folders; with several, each alone and all at once
  std::vector<NvmeOperation> operations = {NvmeOperation::read, NvmeOperation::write, NvmeOperation::mixed};
  std::vector<NvmeAccess> accesses = {NvmeAccess::sequential, NvmeAccess::random};
  std::vector<Bytes> blocks;
  std::vector<std::uint32_t> depths;
  double read_share = 0.5;        // of the blocks of a mixed case
  Bytes file_bytes = 0;           // of each path; 0: chosen from free space, memory and time
  double seconds = 60;            // of the whole benchmark
  double sustained_seconds = 0;   // of bench_nvme_sustained, after its preparation
  bool check_every_byte = false;  // of each block that is read
  IoEngineOptions engine = {};    // that the engine was made with [nvme_engine_options]
};

// What was found of a path, and what preparing it took.
struct NvmePath {
  std::string path, file_system, drive;  // drive: model or device name, "" where not known
  std::optional<double> link_rate;       // GB/s of the drive's PCIe link
  bool direct = false;
  Bytes file_bytes = 0;
  double prepare_seconds = 0;
};

struct NvmeResult {
  std::string group, name;  // name: "random read 1MiB depth 8", and its path where there are several
  std::string path;         // "" for all at once
  NvmeOperation operation = NvmeOperation::read;
  NvmeAccess access = NvmeAccess::sequential;
  Bytes block_bytes = 0;
  std::uint32_t depth = 0;  // of each path
  double in_flight = 0;     // blocks of each path at its drive: the depth, or what the engine has at a time
  double read_share = 1;    // of the blocks
  double value = 0;         // GB/s (1e9 bytes), median over the rounds
  double deviation = 0;     // median absolute deviation, GB/s
  double operations_per_second = 0;
  double latency_median = 0, latency_p99 = 0;  // seconds from submission until the block was seen to be there
  double cpu_seconds_per_gb = 0;               // of the process, without making and checking data
  std::optional<double> ceiling;               // GB/s
  NvmeSource source = NvmeSource::direct;
  int rounds = 0;
  Bytes moved_bytes = 0;
  std::optional<double> ratio() const { return ceiling ? std::optional(value / *ceiling) : std::nullopt; }
};

struct NvmeReport {
  std::vector<NvmePath> paths;
  std::vector<NvmeResult> results;
  std::vector<std::string> notes;
  std::vector<std::string> failures;  // of paths, each with its remedy; in the notes too
  double seconds_needed = 0;          // for a round, where the time was too short for any result; else 0
  std::string engine;                 // "io_uring", "threads"
  bool registered_buffers = false;    // the kernel knew the buffers in advance
  double memory_rate = 0;             // GB/s that all CPUs copy
  Bytes written_bytes = 0;            // in all: what the drives' lives were used for
  double seconds = 0;
  bool stopped = false;
};

// Writes without a pause, all paths at once; the rate of each interval.
struct NvmeSustained {
  std::string name, path;  // path: "" for the sum of several
  Bytes block_bytes = 0;
  std::uint32_t depth = 0;
  double in_flight = 0;  // as of an NvmeResult
  double interval_seconds = 0;
  std::vector<double> rates;  // GB/s of each interval
  double first = 0;           // GB/s: the highest median of three neighbours in the first third
  double steady = 0;          // GB/s: median of the last third
  bool settled = false;       // the last two sixths differ by less than a tenth
  NvmeSource source = NvmeSource::direct;
  double drop() const { return first > 0 ? 1 - steady / first : 0; }
  double ceiling() const { return first > steady ? first : steady; }  // GB/s: a rate may also rise
};

struct NvmeSustainedReport {
  NvmeReport run;  // without results
  std::vector<NvmeSustained> results;
};

struct NvmeControl {
  std::function<bool()> stop_requested;                             // any thread
  std::function<void(double done, std::string_view now)> progress;  // the caller's thread; done: 0 to 1
  std::function<void(std::string_view line)> say;  // a step that has ended; the caller's thread
};

std::vector<Bytes> default_nvme_blocks();
std::vector<std::uint32_t> default_nvme_depths();
// Of the host, for the buffers of `paths` paths.
Bytes nvme_bench_memory(Bytes largest_block, std::uint32_t largest_depth, std::size_t paths);
// Of an engine that has every depth in flight at the drive, as far as engines go.
IoEngineOptions nvme_engine_options(const NvmeBenchOptions& options);
// Throws UsageError where a path cannot be used, DoesNotFit where its disk is too small, Error for wrong data
// or where the paths fail before anything is measured. `host` is charged for the buffers.
NvmeReport bench_nvme(IoEngine& io, MemoryBudget& host, const NvmeBenchOptions& options,
                      const NvmeControl& control);
// With the last block size and the last depth of the options. DoesNotFit where the drive is too slow for the
// time.
NvmeSustainedReport bench_nvme_sustained(IoEngine& io, MemoryBudget& host, const NvmeBenchOptions& options,
                                         const NvmeControl& control);

}  // namespace headrace

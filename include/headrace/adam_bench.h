// Benchmark of the CPU's optimizer update: GB/s of ideal traffic (each state once in and out, the gradient
// in, 16-bit parameters out) by format of the states, optimizer and size, beside a ceiling of the same loads
// and stores with one addition for each array, over the same memory in the same rounds.
//
// A round takes one sample of the update, of the ceiling with plain stores and, where 16-bit parameters are
// written, of the ceiling with streaming ones; a figure is the median over the rounds, the ratio the median
// of the rounds' ratios to the better ceiling. Before it is timed, one update of the case's own tensors, with
// the threads and the stores (plain, or streaming where the update is large) that are timed then, is compared
// with the scalar kernel's, bit by bit, in pieces spread over them; other bits are an Error.
//
// Time: AdamBenchOptions::seconds for everything, shared out evenly over what is left to measure; a case has
// three rounds whatever they cost.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/bench.h"
#include "headrace/bytes.h"
#include "headrace/memory.h"

namespace headrace {

// Names in the order of the tables: "fp32", "bf16", ...; "adamw", ...
std::vector<std::string_view> adam_bench_formats();
std::vector<std::string_view> adam_bench_optimizers();

// Tensors of equal size that are updated in one call.
struct TensorShape {
  std::uint64_t tensors = 1, numel = 0;  // numel of each, a multiple of 64
  bool operator==(const TensorShape&) const = default;
};
std::string text_of(const TensorShape& shape);  // "64Ki", "10000x4Ki"
// What text_of gives, or numbers without a suffix. Throws UsageError that names `flag`, for more than 2^44
// elements in all too.
TensorShape parse_shape(const std::string& text, const std::string& flag);
std::vector<TensorShape> default_adam_shapes();

struct AdamBenchOptions {
  std::vector<std::string> formats = {}, optimizers = {"adamw"};  // formats: empty for all
  std::vector<TensorShape> shapes = default_adam_shapes();
  double seconds = 60;
};

struct AdamBenchResult {
  std::string format, optimizer, name;  // name: "bf16 adamw 64Mi"
  TensorShape shape;
  double bytes_per_element = 0;                  // ideal traffic
  double seconds = 0;                            // of one update of the shape
  double value = 0, deviation = 0, ceiling = 0;  // GB/s (1e9 bytes); median absolute deviation of the value
  double ratio = 0;
  bool streaming_ceiling = false;  // the better one
  int rounds = 0;
};

struct AdamBenchReport {
  std::vector<AdamBenchResult> results;
  std::vector<std::string> notes;  // among them every case that was left out, with why
  std::string isa;
  int threads = 0;
  std::string placement;  // of the threads on NUMA nodes; empty where they are not bound
  bool stopped = false;
};

// Host memory that the smallest case needs.
Bytes adam_bench_least_memory(const AdamBenchOptions& options);
// With cpu_threads() threads. Cases that need more than host.limit() are left out. Throws UsageError for a
// name that is not among those above.
AdamBenchReport bench_adam(MemoryBudget& host, const AdamBenchOptions& options, const BenchControl& control);

}  // namespace headrace

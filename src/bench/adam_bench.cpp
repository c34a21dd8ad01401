// Question: how near is the optimizer update to what memory allows, by format, optimizer and size? Ceiling:
// see adam_bench.h.
#include "headrace/adam_bench.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <functional>

#include "cpu_adam/update_ceiling.h"
#include "headrace/cpu_pool.h"
#include "headrace/elapsed.h"
#include "headrace/errors.h"
#include "headrace/numa_memory.h"
#include "headrace/statistics.h"
#include "src/bench/rounds.h"
#include "src/bench/update_check.h"
#include "src/bench/update_tensors.h"

namespace headrace {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int fewest_adam_rounds = 3, most_adam_rounds = 25;
constexpr double least_sample_seconds = 2e-3;  // shorter updates are repeated in a sample

struct NamedCase {
  std::string format, optimizer, name;
  UpdateCase work;
};

std::vector<NamedCase> cases_of(const AdamBenchOptions& options) {
  std::vector<std::string> formats = options.formats;
  if (formats.empty())
    for (const std::string_view name : adam_bench_formats()) formats.emplace_back(name);
  std::vector<NamedCase> cases;
  for (const std::string& format : formats)
    for (const std::string& optimizer : options.optimizers)
      for (const TensorShape& shape : options.shapes)
        cases.push_back({.format = format,
                         .optimizer = optimizer,
                         .name = fmt::format("{} {} {}", format, optimizer, text_of(shape)),
                         .work = {update_format(format), update_arguments(optimizer), shape}});
  return cases;
}

// The update that is measured, once over the tensors that it is measured on.
void verify(const NamedCase& one, std::span<const GroupSpan> tensors) {
  fill(one.work, tensors);
  optimizer_update_parallel(tensors, {&one.work.arguments, 1});
  if (!has_scalar_bits(one.work, tensors))
    throw Error(
        fmt::format("{}: the update by {} does not give the bits of the scalar kernel. The processor "
                    "is not sound, or this is a bug; HEADRACE_ISA=scalar avoids it.",
                    one.name, name_of(best_isa())));
}

double gigabytes(const UpdateCase& work) {
  return ideal_bytes_per_element(work) * static_cast<double>(work.shape.tensors * work.shape.numel) * 1e-9;
}

// The update and its ceilings over the same memory, in turns.
class CaseRounds {
 public:
  CaseRounds(const NamedCase& one, std::span<const GroupSpan> tensors) : one_(one) {
    works_.emplace_back([=, &one] { optimizer_update_parallel(tensors, {&one.work.arguments, 1}); });
    works_.emplace_back([=] { update_ceiling_parallel(tensors, Stores::cached); });
    if (one.work.format.low_precision)
      works_.emplace_back([=] { update_ceiling_parallel(tensors, Stores::streaming); });
    seconds_.resize(works_.size());
  }

  // Rounds until the time is over, at least three, or until a stop is asked for.
  void run(double seconds, const std::function<bool()>& stop_requested) {
    const auto start = Clock::now();
    const double once = std::max(seconds_of(0, 1), 1e-9);
    for (std::size_t w = 1; w < works_.size(); ++w) works_[w]();
    const auto repeats = static_cast<int>(std::clamp(std::ceil(least_sample_seconds / once), 1.0, 1e6));
    for (int round = 0; round < most_adam_rounds; ++round) {
      if (stop_requested && stop_requested()) return;
      if (round >= fewest_adam_rounds && seconds_since(start) >= seconds) return;
      for (std::size_t w = 0; w < works_.size(); ++w) seconds_[w].push_back(seconds_of(w, repeats));
    }
  }

  bool measured() const { return !seconds_.front().empty(); }

  AdamBenchResult result() const {
    std::size_t best = 1;
    for (std::size_t w = 2; w < works_.size(); ++w)
      if (median(seconds_[w]) < median(seconds_[best])) best = w;
    const double gb = gigabytes(one_.work);
    std::vector<double> rates, ratios;
    for (std::size_t round = 0; round < seconds_[0].size(); ++round) {
      rates.push_back(gb / seconds_[0][round]);
      ratios.push_back(seconds_[best][round] / seconds_[0][round]);
    }
    return {.format = one_.format,
            .optimizer = one_.optimizer,
            .name = one_.name,
            .shape = one_.work.shape,
            .bytes_per_element = ideal_bytes_per_element(one_.work),
            .seconds = median(seconds_[0]),
            .value = median(rates),
            .deviation = median_deviation(rates),
            .ceiling = gb / median(seconds_[best]),
            .ratio = median(ratios),
            .streaming_ceiling = best == 2,
            .rounds = static_cast<int>(rates.size())};
  }

 private:
  double seconds_of(std::size_t work, int repeats) {
    const auto start = Clock::now();
    for (int i = 0; i < repeats; ++i) works_[work]();
    return seconds_since(start) / repeats;
  }

  const NamedCase& one_;
  std::vector<std::function<void()>> works_;  // the update, then the ceilings
  std::vector<std::vector<double>> seconds_;  // of one call: by work, then by round
};

std::string count_text(std::uint64_t count) {
  constexpr std::string_view units[] = {"", "Ki", "Mi", "Gi", "Ti"};
  std::size_t unit = 0;
  for (; count > 0 && count % 1024 == 0 && unit + 1 < std::size(units); ++unit) count /= 1024;
  return fmt::format("{}{}", count, units[unit]);
}

constexpr std::uint64_t most_elements = std::uint64_t{1} << 44;

// None where the text is no number; a number above the most is most + 1.
std::optional<std::uint64_t> count_of(std::string_view text) {
  std::uint64_t count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  const std::string_view unit = text.substr(static_cast<std::size_t>(end - text.data()));
  const int shift = unit.empty()   ? 0
                    : unit == "Ki" ? 10
                    : unit == "Mi" ? 20
                    : unit == "Gi" ? 30
                    : unit == "Ti" ? 40
                                   : -1;
  const bool too_large = error == std::errc::result_out_of_range;
  if ((error != std::errc{} && !too_large) || shift < 0 || (count == 0 && !too_large)) return std::nullopt;
  return too_large || count > most_elements >> shift ? most_elements + 1 : count << shift;
}

}  // namespace

std::string text_of(const TensorShape& shape) {
  const std::string numel = count_text(shape.numel);
  return shape.tensors == 1 ? numel : fmt::format("{}x{}", shape.tensors, numel);
}

TensorShape parse_shape(const std::string& text, const std::string& flag) {
  const std::size_t by = text.find('x');
  const auto tensors =
      by == std::string::npos ? std::optional<std::uint64_t>(1) : count_of(text.substr(0, by));
  const auto numel = count_of(by == std::string::npos ? text : text.substr(by + 1));
  if (tensors && numel && *tensors > most_elements / *numel)
    throw UsageError(fmt::format("{}: \"{}\" is more than the {} elements (2^44) that a case may have.", flag,
                                 shortened(text), count_text(most_elements)));
  if (!tensors || !numel || *numel % quantised_block_numel != 0)
    throw UsageError(fmt::format(
        "{}: \"{}\" is not a number of elements that {} divides, like 64Ki or 16Mi, nor tensors of such a "
        "size, like 10000x4Ki.",
        flag, shortened(text), quantised_block_numel));
  return {.tensors = *tensors, .numel = *numel};
}

std::vector<TensorShape> default_adam_shapes() {
  constexpr std::uint64_t kibi = 1 << 10, mebi = 1 << 20;
  return {{1, 64 * kibi}, {1, mebi}, {1, 16 * mebi}, {1, 64 * mebi}, {1, 256 * mebi}, {10000, 4 * kibi}};
}

Bytes adam_bench_least_memory(const AdamBenchOptions& options) {
  Bytes least = ~Bytes{0};
  for (const NamedCase& one : cases_of(options)) least = std::min(least, tensor_bytes(one.work));
  return least;
}

AdamBenchReport bench_adam(MemoryBudget& host, const AdamBenchOptions& options, const BenchControl& control) {
  const auto start = Clock::now();
  AdamBenchReport report{.results = {},
                         .notes = {},
                         .isa = std::string(name_of(best_isa())),
                         .threads = cpu_threads(),
                         .placement = describe(cpu_placement())};
  std::vector<NamedCase> cases = cases_of(options);
  std::erase_if(cases, [&](const NamedCase& one) {
    const Bytes bytes = tensor_bytes(one.work);
    if (bytes <= host.limit()) return false;
    report.notes.push_back(fmt::format("left out: {} takes {} of memory, and there are {}", one.name,
                                       format_bytes(bytes), format_bytes(host.limit())));
    return true;
  });
  for (std::size_t c = 0; c < cases.size() && !report.stopped; ++c) {
    const NamedCase& one = cases[c];
    if (control.progress)
      control.progress(static_cast<double>(c) / static_cast<double>(cases.size()), one.name);
    const double share = (options.seconds - seconds_since(start)) / static_cast<double>(cases.size() - c);
    const auto begun = Clock::now();
    const HostBuffer buffer(host, MemoryTag::optimizer, tensor_bytes(one.work));
    const NodeMemory placed(buffer.memory(), node_runs(one.work, buffer.memory(), cpu_placement()));
    const std::vector<GroupSpan> tensors = lay_out(one.work, buffer.memory());
    verify(one, tensors);
    CaseRounds rounds(one, tensors);
    rounds.run(share - seconds_since(begun), control.stop_requested);
    if (rounds.measured()) report.results.push_back(rounds.result());
    report.stopped = control.stop_requested && control.stop_requested();
  }
  return report;
}

}  // namespace headrace

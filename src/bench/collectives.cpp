// Question: how fast is each collective of the engine, by size, between the ranks of this job? Ceiling: see
// bench.h.
#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <string>

#include "headrace/bench.h"
#include "headrace/errors.h"
#include "src/bench/collective_cases.h"
#include "src/bench/rounds.h"

namespace headrace {
namespace {

constexpr Bytes region_alignment = 4096;
constexpr std::string_view copies_are_the_ceiling =
    "of the bus bandwidth: copies within the ranks' memory, all ranks at once, in the same rounds";
constexpr std::string_view one_rank_alone =
    "1 rank: nothing moves between ranks, so the times are those of the calls alone. Start it as: mpirun -n "
    "2 headrace bench collectives";
constexpr Collective all_collectives[] = {Collective::all_gather, Collective::reduce_scatter,
                                          Collective::all_reduce, Collective::broadcast,
                                          Collective::all_to_all};

// Where the parts of the device's memory start.
struct Regions {
  Regions(Bytes largest, int ranks)
      : slices(round_up(largest, region_alignment)),
        sums(slices + round_up(slices_bytes(largest, ranks), region_alignment)),
        end(sums + round_up(slice_of(largest, 0, ranks).count + sizeof(float), region_alignment)) {}
  Bytes slices, sums, end;
};

// One case of the rounds: a collective at a size, or (none) a copy of that size within the device's memory.
struct SizedCase {
  std::optional<Collective> collective;
  Bytes size = 0;  // as asked for
  Bytes bytes() const { return collective ? moved_bytes(*collective, size) : size; }
};

std::string text_of(const SizedCase& sized) {
  return fmt::format("{} {}{}", sized.collective ? name_of(*sized.collective) : "copy",
                     size_text(sized.bytes()), sized.size == uneven_collective_bytes ? " (uneven)" : "");
}

class RanksTogether {
 public:
  explicit RanksTogether(const CollectiveBench& bench) : bench_(bench) {}

  // The slowest rank's seconds are what a collective took.
  Observation agree(const Observation& own) const {
    Observation all;
    for (const Observation& other :
         gather_from_ranks(own, bench_.communicator, bench_.device, "what a sample took")) {
      all.seconds = std::max(all.seconds, other.seconds);
      all.stop_requested |= other.stop_requested;
    }
    return all;
  }

  // The calls that are timed move zeros: what is summed in place would not stay finite. One more call,
  // of known data, is verified.
  double sample(CollectiveCase& collective, Bytes bytes, std::uint64_t count) const {
    bench_.device.fill_zero(Lane::communicate, bench_.vector, bytes);
    const double seconds = seconds_of(count, [&] { collective.call(); });
    collective.load();
    collective.call();
    collective.check();
    return seconds;
  }

  double sample_copy(Bytes bytes, std::uint64_t count) const {
    return seconds_of(count,
                      [&] { bench_.device.copy(Lane::communicate, bench_.slices, bench_.vector, bytes); });
  }

 private:
  // All ranks start together.
  template <class Call>
  double seconds_of(std::uint64_t count, const Call& call) const {
    bench_.device.synchronize();
    bench_.communicator.barrier("start of a sample");
    const auto start = std::chrono::steady_clock::now();
    for (std::uint64_t i = 0; i < count; ++i) call();
    bench_.device.host_wait(bench_.device.record(Lane::communicate));
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

  const CollectiveBench& bench_;
};

// Ranks that measure different things would wait for each other in different places.
void require_same_options(const BenchOptions& options, const CollectiveBench& bench) {
  std::string text = fmt::format("{}", options.seconds_per_case);
  for (const Bytes bytes : options.sizes) text += fmt::format(" {}", bytes);
  const auto hashes = gather_from_ranks(std::hash<std::string>()(text), bench.communicator, bench.device,
                                        "options of the ranks");
  for (std::size_t r = 1; r < hashes.size(); ++r)
    if (hashes[r] != hashes[0])
      throw UsageError(
          fmt::format("rank {} was started with other sizes or seconds than rank 0. Start every rank with "
                      "the same command.",
                      r));
}

std::vector<SizedCase> sized_cases(std::vector<Bytes> sizes, bool with_copies) {
  sizes.push_back(uneven_collective_bytes);
  std::sort(sizes.begin(), sizes.end());
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  std::vector<SizedCase> cases;
  if (with_copies)
    for (const Bytes bytes : sizes) cases.push_back({std::nullopt, bytes});
  for (const Collective collective : all_collectives)
    for (const Bytes bytes : sizes) cases.push_back({collective, bytes});
  return cases;
}

std::vector<BenchCase> bench_cases(const std::vector<SizedCase>& sized, const CollectiveBench& bench,
                                   const RanksTogether& together) {
  std::vector<BenchCase> cases;
  for (const auto& [collective, size] : sized) {
    if (collective)
      cases.push_back({text_of({collective, size}),
                       [&together, size, work = make_collective_case(bench, *collective, size)](
                           std::uint64_t count) { return together.sample(*work, size, count); }});
    else
      cases.push_back({text_of({collective, size}),
                       [&together, size](std::uint64_t count) { return together.sample_copy(size, count); }});
  }
  return cases;
}

BenchResult result_of(const SizedCase& sized, const std::vector<double>& seconds, int ranks) {
  BenchResult result{.group = std::string(name_of(*sized.collective)),
                     .name = text_of(sized),
                     .bytes = sized.bytes(),
                     .seconds = median(seconds),
                     .algorithm_bandwidth = std::nullopt,
                     .value = median(seconds) * 1e6,
                     .unit = "us",
                     .ceiling = std::nullopt,
                     .rounds = static_cast<int>(seconds.size())};
  if (ranks == 1) return result;  // nothing moves, so there is no bandwidth
  const auto [algorithm, bus] = collective_bandwidth(*sized.collective, result.bytes, result.seconds, ranks);
  result.algorithm_bandwidth = algorithm;
  result.value = bus;
  result.unit = "GB/s";
  return result;
}

std::vector<BenchResult> results_of(const std::vector<SizedCase>& cases, const Rounds& rounds, int ranks) {
  std::map<Bytes, double> copy_rates;  // by size
  for (std::size_t c = 0; c < cases.size(); ++c)
    if (!cases[c].collective && !rounds.seconds[c].empty())
      copy_rates[cases[c].size] = static_cast<double>(cases[c].size) / median(rounds.seconds[c]) * 1e-9;
  std::vector<BenchResult> results;
  for (std::size_t c = 0; c < cases.size(); ++c) {
    if (!cases[c].collective || rounds.seconds[c].empty()) continue;
    results.push_back(result_of(cases[c], rounds.seconds[c], ranks));
    const auto ceiling = copy_rates.find(cases[c].size);
    if (ceiling != copy_rates.end()) results.back().ceiling = ceiling->second;
  }
  return results;
}

}  // namespace

std::vector<Bytes> default_collective_sizes() {
  using namespace literals;
  return {4_KiB, 32_KiB, 256_KiB, 2_MiB, 16_MiB, 64_MiB};
}

BenchMemory collective_bench_memory(Bytes largest_size, int ranks) {
  const Bytes largest = std::max(largest_size, uneven_collective_bytes);
  return {.device_bytes = Regions(largest, ranks).end,
          .host_bytes = round_up(slices_bytes(largest, ranks), region_alignment)};
}

BenchReport bench_collectives(Device& device, DeviceKernels& kernels, Communicator& communicator,
                              MemoryBudget& host, const BenchOptions& options, const BenchControl& control) {
  const int ranks = communicator.size();
  const Bytes largest =
      std::max(uneven_collective_bytes, *std::max_element(options.sizes.begin(), options.sizes.end()));
  const Regions regions(largest, ranks);
  const HostBuffer staging(host, MemoryTag::staging, collective_bench_memory(largest, ranks).host_bytes);
  const CollectiveBench bench{.device = device,
                              .kernels = kernels,
                              .communicator = communicator,
                              .vector = device.arena(),
                              .slices = device.arena() + regions.slices,
                              .sums = reinterpret_cast<float*>(device.arena() + regions.sums),
                              .staging = staging.memory()};
  require_same_options(options, bench);
  device.fill_zero(Lane::communicate, device.arena(), regions.end);  // no first touch in a sample

  const bool with_copies = device.info().host_addressable && ranks > 1;
  const std::vector<SizedCase> sized = sized_cases(options.sizes, with_copies);
  const RanksTogether together(bench);
  const std::vector<BenchCase> cases = bench_cases(sized, bench, together);
  const Rounds rounds = measure_rounds(cases, options.seconds_per_case, control,
                                       [&](const Observation& own) { return together.agree(own); });
  BenchReport report{.results = results_of(sized, rounds, ranks),
                     .ceiling = std::string(with_copies ? copies_are_the_ceiling : "not known"),
                     .notes = {},
                     .stopped = rounds.stopped};
  if (ranks == 1) report.notes.emplace_back(one_rank_alone);
  return report;
}

}  // namespace headrace

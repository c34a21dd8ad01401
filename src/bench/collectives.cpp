// Question: how fast is each collective of the engine, by size, between the ranks of this job? Ceiling: see
// bench.h.
#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <string>

#include "headrace/bench.h"
#include "headrace/elapsed.h"
#include "headrace/errors.h"
#include "headrace/statistics.h"
#include "src/bench/collective_cases.h"
#include "src/bench/rounds.h"

namespace headrace {
namespace {

constexpr Bytes region_alignment = 4096;
constexpr std::string_view copies_are_the_ceiling =
    "what each rank receives, copied within its memory by all ranks at once, in the same rounds";
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

// One case of the rounds: a collective at a size, or its ceiling, which only copies what each rank receives.
struct SizedCase {
  Collective collective = Collective::all_gather;
  Bytes size = 0;  // as asked for
  bool ceiling = false;
  Bytes bytes() const { return moved_bytes(collective, size); }
};

// The root of a broadcast receives nothing; of every other vector each rank has its own slice already.
Bytes received_bytes(Collective collective, Bytes bytes, int ranks) {
  return collective == Collective::broadcast ? bytes : bytes - bytes / static_cast<Bytes>(ranks);
}
// So those share a ceiling.
Collective ceiling_of(Collective collective) {
  return collective == Collective::broadcast ? Collective::broadcast : Collective::all_gather;
}

std::string text_of(const SizedCase& sized) {
  return fmt::format("{}{} {}{}", sized.ceiling ? "ceiling of " : "", name_of(sized.collective),
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

  double sample_ceiling(Collective collective, Bytes bytes, std::uint64_t count) const {
    const bool receives = collective != Collective::broadcast || bench_.rank() != broadcast_root;
    const Bytes received = receives ? received_bytes(collective, bytes, bench_.ranks()) : 0;
    return seconds_of(count,
                      [&] { bench_.device.copy(Lane::communicate, bench_.slices, bench_.vector, received); });
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
    return seconds_since(start);
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

std::vector<SizedCase> sized_cases(std::vector<Bytes> sizes, bool with_ceilings) {
  sizes.push_back(uneven_collective_bytes);
  std::sort(sizes.begin(), sizes.end());
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  std::vector<SizedCase> cases;
  const auto add = [&](Collective collective, bool ceiling) {
    for (const Bytes bytes : sizes) cases.push_back({collective, bytes, ceiling});
  };
  if (with_ceilings)
    for (const Collective collective : {Collective::all_gather, Collective::broadcast}) add(collective, true);
  for (const Collective collective : all_collectives) add(collective, false);
  return cases;
}

std::vector<BenchCase> bench_cases(const std::vector<SizedCase>& sized, const CollectiveBench& bench,
                                   const RanksTogether& together) {
  std::vector<BenchCase> cases;
  for (const SizedCase& c : sized) {
    if (c.ceiling)
      cases.push_back({text_of(c), [&, c](std::uint64_t count) {
                         return together.sample_ceiling(c.collective, c.size, count);
                       }});
    else
      cases.push_back(
          {text_of(c), [&, c, work = make_collective_case(bench, c.collective, c.size)](std::uint64_t count) {
             return together.sample(*work, c.size, count);
           }});
  }
  return cases;
}

BenchResult result_of(const SizedCase& sized, const std::vector<double>& seconds, int ranks) {
  BenchResult result{.group = std::string(name_of(sized.collective)),
                     .name = text_of(sized),
                     .bytes = sized.bytes(),
                     .seconds = median(seconds),
                     .algorithm_bandwidth = std::nullopt,
                     .value = median(seconds) * 1e6,
                     .unit = "us",
                     .ceiling = std::nullopt,
                     .rounds = static_cast<int>(seconds.size())};
  if (ranks == 1) return result;  // nothing moves, so there is no bandwidth
  const auto [algorithm, bus] = collective_bandwidth(sized.collective, result.bytes, result.seconds, ranks);
  result.algorithm_bandwidth = algorithm;
  result.value = bus;
  result.unit = "GB/s";
  return result;
}

std::vector<BenchResult> results_of(const std::vector<SizedCase>& cases, const Rounds& rounds, int ranks) {
  std::map<std::pair<Collective, Bytes>, double> ceilings;  // GB/s
  std::vector<BenchResult> results;
  for (std::size_t c = 0; c < cases.size(); ++c) {
    const auto& [collective, size, is_ceiling] = cases[c];
    if (rounds.seconds[c].empty()) continue;
    if (is_ceiling) {
      const auto received = static_cast<double>(received_bytes(collective, size, ranks));
      ceilings[{collective, size}] = received / median(rounds.seconds[c]) * 1e-9;
      continue;
    }
    results.push_back(result_of(cases[c], rounds.seconds[c], ranks));
    const auto ceiling = ceilings.find({ceiling_of(collective), size});  // it came first
    if (ceiling != ceilings.end()) results.back().ceiling = ceiling->second;
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

  const bool with_ceilings = device.info().host_addressable && ranks > 1;
  const std::vector<SizedCase> sized = sized_cases(options.sizes, with_ceilings);
  const RanksTogether together(bench);
  const std::vector<BenchCase> cases = bench_cases(sized, bench, together);
  const Rounds rounds = measure_rounds(cases, options.seconds_per_case, control,
                                       [&](const Observation& own) { return together.agree(own); });
  BenchReport report{.results = results_of(sized, rounds, ranks),
                     .ceiling = std::string(with_ceilings ? copies_are_the_ceiling : "not known"),
                     .notes = {},
                     .stopped = rounds.stopped};
  if (ranks == 1) report.notes.emplace_back(one_rank_alone);
  return report;
}

}  // namespace headrace

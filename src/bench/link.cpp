// Question: how fast do bytes move between host and device, in each direction and in both at once, from
// pinned and from pageable memory? Ceiling: see bench.h.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <latch>
#include <thread>

#include "headrace/bench.h"
#include "headrace/elapsed.h"
#include "headrace/errors.h"
#include "headrace/statistics.h"
#include "src/bench/pattern.h"
#include "src/bench/rounds.h"

namespace headrace {
namespace {

// By the device from pinned or pageable memory, or by plain memcpy.
enum class Path : std::uint8_t { pinned, pageable, plain };
enum class Direction : std::uint8_t { upload, download, both };

struct LinkCase {
  Path path = Path::pinned;
  Direction direction = Direction::upload;
  Bytes bytes = 0;
  bool operator==(const LinkCase&) const = default;
};

std::string text_of(const LinkCase& link) {
  constexpr std::string_view paths[] = {"pinned", "pageable", "memcpy"};
  constexpr std::string_view directions[] = {"upload", "download", "both"};
  return fmt::format("{} {} {}", paths[static_cast<std::size_t>(link.path)],
                     directions[static_cast<std::size_t>(link.direction)], size_text(link.bytes));
}

constexpr bool uploads(const LinkCase& link) {
  return link.direction != Direction::download;
}
constexpr bool downloads(const LinkCase& link) {
  return link.direction != Direction::upload;
}
// Bytes that one operation moves for each byte of its size.
constexpr double directions_of(Direction direction) {
  return direction == Direction::both ? 2 : 1;
}

constexpr std::uint64_t upload_seed = 1, download_seed = 2;
constexpr Bytes region_alignment = 4096;

// What is sent up and what comes down; pinned for as long as it lives, where asked for.
class HostSide {
 public:
  HostSide(Device& device, MemoryBudget& budget, Bytes bytes, bool pinned)
      : device_(device), memory_(budget, MemoryTag::staging, 2 * bytes), bytes_(bytes) {
    pinned_ = pinned && device_.pin(memory_.memory());
    fill_pattern({source(), bytes}, upload_seed);
    std::memset(destination(), 0, bytes);
  }
  HostSide(const HostSide&) = delete;
  HostSide& operator=(const HostSide&) = delete;
  ~HostSide() {
    if (pinned_) device_.unpin(memory_.memory());
  }
  bool pinned() const { return pinned_; }
  std::byte* source() const { return memory_.data(); }
  std::byte* destination() const { return memory_.data() + bytes_; }

 private:
  Device& device_;
  HostBuffer memory_;
  Bytes bytes_;
  bool pinned_ = false;
};

class LinkBench {
 public:
  LinkBench(Device& device, MemoryBudget& budget, Bytes largest)
      : device_(device),
        bytes_(round_up(largest, region_alignment)),
        pageable_(device, budget, bytes_, false),
        pinned_(device, budget, bytes_, true) {
    fill_pattern({pageable_.destination(), bytes_}, download_seed);
    device_.copy(Lane::compute, source(), pageable_.destination(), bytes_);
    device_.fill_zero(Lane::compute, destination(), bytes_);
    device_.synchronize();
  }

  bool has_pinned() const { return pinned_.pinned(); }

  // Seconds of `count` operations. What arrived is verified.
  double sample(const LinkCase& link, std::uint64_t count) {
    const HostSide& host = link.path == Path::pinned ? pinned_ : pageable_;
    clear(host, link);
    const double seconds =
        link.path == Path::plain ? plain_copies(host, link, count) : copies(host, link, count);
    verify(host, link);
    return seconds;
  }

 private:
  std::byte* destination() const { return device_.arena(); }
  std::byte* source() const { return device_.arena() + bytes_; }

  template <class Work>
  static double seconds_of(const Work& work) {
    const auto start = std::chrono::steady_clock::now();
    work();
    return seconds_since(start);
  }

  double copies(const HostSide& host, const LinkCase& link, std::uint64_t count) {
    return seconds_of([&] {
      for (std::uint64_t i = 0; i < count; ++i) {
        if (uploads(link)) device_.copy(Lane::upload, destination(), host.source(), link.bytes);
        if (downloads(link)) device_.copy(Lane::download, host.destination(), source(), link.bytes);
      }
      const Event up = device_.record(Lane::upload), down = device_.record(Lane::download);
      device_.host_wait(up);
      device_.host_wait(down);
    });
  }

  // One thread a direction; only where the host may touch the device's memory.
  double plain_copies(const HostSide& host, const LinkCase& link, std::uint64_t count) {
    const auto upload = [&] { repeat_memcpy(destination(), host.source(), link.bytes, count); };
    const auto download = [&] { repeat_memcpy(host.destination(), source(), link.bytes, count); };
    if (link.direction == Direction::upload) return seconds_of(upload);
    if (link.direction == Direction::download) return seconds_of(download);
    std::latch ready(2);
    std::thread other([&] {
      ready.arrive_and_wait();
      download();
    });
    ready.arrive_and_wait();
    return seconds_of([&] {
      upload();
      other.join();
    });
  }

  static void repeat_memcpy(std::byte* to, const std::byte* from, Bytes bytes, std::uint64_t count) {
    for (std::uint64_t i = 0; i < count; ++i) {
      std::memcpy(to, from, bytes);
      std::atomic_signal_fence(std::memory_order_seq_cst);  // so that each copy is made
    }
  }

  // What an earlier sample brought is not there any more.
  void clear(const HostSide& host, const LinkCase& link) {
    if (uploads(link)) device_.fill_zero(Lane::compute, destination(), link.bytes);
    if (downloads(link)) std::memset(host.destination(), 0, link.bytes);
    device_.synchronize();
  }

  // Through the compute lane, which no link paces.
  void verify(const HostSide& host, const LinkCase& link) {
    if (downloads(link)) verify(host, link, download_seed);
    if (!uploads(link)) return;
    device_.copy(Lane::compute, host.destination(), destination(), link.bytes);
    device_.synchronize();
    verify(host, link, upload_seed);
  }

  static void verify(const HostSide& host, const LinkCase& link, std::uint64_t seed) {
    if (const auto offset = pattern_mismatch({host.destination(), link.bytes}, seed))
      throw Error(fmt::format(
          "{}: the byte at offset {} is not the one that was {}. The memory, the device or the link between "
          "them is not sound.",
          text_of(link), *offset, seed == upload_seed ? "uploaded" : "downloaded"));
  }

  Device& device_;
  Bytes bytes_;
  HostSide pageable_, pinned_;
};

double gigabytes_per_second(const LinkCase& link, double seconds) {
  return directions_of(link.direction) * static_cast<double>(link.bytes) / seconds * 1e-9;
}

std::vector<LinkCase> link_cases(const std::vector<Bytes>& sizes, bool plain, bool pinned) {
  std::vector<LinkCase> links;
  for (const Bytes bytes : sizes)
    for (const Path path : {Path::plain, Path::pinned, Path::pageable}) {
      if ((path == Path::plain && !plain) || (path == Path::pinned && !pinned)) continue;
      for (const Direction direction : {Direction::upload, Direction::download, Direction::both})
        links.push_back({path, direction, bytes});
    }
  return links;
}

std::string ceiling_text(const DeviceInfo& info) {
  if (info.link_bytes_per_second > 0)
    return fmt::format("{:.4g} GB/s in each direction ({})", info.link_bytes_per_second * 1e-9, info.link);
  if (info.host_addressable)
    return "memcpy between the same buffers, one thread a direction, in the same rounds";
  return "not known";
}

// GB/s of a case by number, where it is known.
using Rates = std::vector<std::optional<double>>;

std::optional<double> ceiling_of(const LinkCase& link, const DeviceInfo& info,
                                 const std::vector<LinkCase>& links, const Rates& rates) {
  if (info.link_bytes_per_second > 0)
    return directions_of(link.direction) * info.link_bytes_per_second * 1e-9;
  for (std::size_t c = 0; c < links.size(); ++c)
    if (links[c] == LinkCase{Path::plain, link.direction, link.bytes}) return rates[c];
  return std::nullopt;
}

std::vector<BenchResult> results_of(const std::vector<LinkCase>& links, const Rounds& rounds,
                                    const DeviceInfo& info) {
  Rates rates(links.size());
  for (std::size_t c = 0; c < links.size(); ++c)
    if (!rounds.seconds[c].empty()) rates[c] = gigabytes_per_second(links[c], median(rounds.seconds[c]));
  std::vector<BenchResult> results;
  for (std::size_t c = 0; c < links.size(); ++c) {
    if (links[c].path == Path::plain || !rates[c]) continue;
    results.push_back({.group = size_text(links[c].bytes),
                       .name = text_of(links[c]),
                       .bytes = links[c].bytes,
                       .seconds = median(rounds.seconds[c]),
                       .algorithm_bandwidth = std::nullopt,
                       .value = *rates[c],
                       .unit = "GB/s",
                       .ceiling = ceiling_of(links[c], info, links, rates),
                       .rounds = static_cast<int>(rounds.seconds[c].size())});
  }
  return results;
}

}  // namespace

std::vector<Bytes> default_link_sizes() {
  using namespace literals;
  return {4_KiB, 32_KiB, 256_KiB, 2_MiB, 16_MiB, 64_MiB, 256_MiB};
}

BenchMemory link_bench_memory(Bytes largest_size) {
  const Bytes region = round_up(largest_size, region_alignment);
  return {.device_bytes = 2 * region, .host_bytes = 4 * region};
}

BenchReport bench_link(Device& device, MemoryBudget& host, const BenchOptions& options,
                       const BenchControl& control) {
  const DeviceInfo& info = device.info();
  LinkBench bench(device, host, *std::max_element(options.sizes.begin(), options.sizes.end()));
  const bool plain = info.link_bytes_per_second <= 0 && info.host_addressable;
  const std::vector<LinkCase> links = link_cases(options.sizes, plain, bench.has_pinned());
  std::vector<BenchCase> cases;
  cases.reserve(links.size());
  for (const LinkCase& link : links)
    cases.push_back({text_of(link), [&](std::uint64_t count) { return bench.sample(link, count); }});
  const Rounds rounds =
      measure_rounds(cases, options.seconds_per_case, control, [](const Observation& own) { return own; });
  BenchReport report{.results = results_of(links, rounds, info),
                     .ceiling = ceiling_text(info),
                     .notes = {},
                     .stopped = rounds.stopped};
  if (!bench.has_pinned())
    report.notes.emplace_back("host memory could not be pinned: only pageable memory was measured");
  return report;
}

}  // namespace headrace

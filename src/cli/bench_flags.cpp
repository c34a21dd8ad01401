#include "src/cli/bench_flags.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <set>

#include "headrace/errors.h"
#include "headrace/memory.h"

namespace headrace::cli {
namespace {

constexpr Bytes largest_size = Bytes{1} << 40;
constexpr Bytes mebibyte = Bytes{1} << 20;

std::string text_of(const std::vector<Bytes>& sizes) {
  std::string text;
  for (const Bytes bytes : sizes) text += (text.empty() ? "" : ",") + size_text(bytes);
  return text;
}

// 0 where the flag is not given.
Bytes limit_of(const std::string& flag, const std::vector<std::string>& given) {
  if (given.empty()) return 0;
  const Bytes limit = parse_bytes(only_value(flag, given), flag);
  if (limit == 0)
    throw UsageError(
        fmt::format("{}: a limit of 0 bytes leaves no memory. Leave it out for no limit.", flag));
  return limit;
}

struct Limits {
  Bytes device = 0, host = 0;  // as given; 0: none
  Bytes device_available = 0, host_available = 0;
  bool device_is_host = false;

  bool allow(const BenchMemory& need) const {
    if (device != 0 && need.device_bytes > device) return false;
    if (host != 0 && need.host_bytes > host) return false;
    const Bytes on_host = need.host_bytes + (device_is_host ? need.device_bytes : 0);
    return need.device_bytes <= device_available && on_host <= host_available;
  }
};

std::string limit_text(Bytes limit, Bytes available) {
  return limit != 0 ? fmt::format("limit {}", format_bytes(limit))
                    : fmt::format("{} available", format_bytes(available));
}

DoesNotFit does_not_fit(const std::vector<Bytes>& sizes, const BenchFlags::Need& need, const Limits& limits) {
  const BenchMemory wanted = need(sizes.back());
  std::string text = fmt::format(
      "the benchmark does not fit: with --sizes up to {} it needs {} of device memory ({}) and {} of host "
      "memory ({}).",
      size_text(sizes.back()), format_bytes(wanted.device_bytes),
      limit_text(limits.device, limits.device_available), format_bytes(wanted.host_bytes),
      limit_text(limits.host, limits.host_available));
  std::vector<std::string> changes;
  std::vector<Bytes> smaller = sizes;
  while (!smaller.empty() && !limits.allow(need(smaller.back()))) smaller.pop_back();
  if (!smaller.empty()) changes.push_back(fmt::format("--sizes {}", text_of(smaller)));
  // Larger limits help where the machine has the memory.
  Limits raised = limits;
  std::string flags;
  const auto raise = [&](std::string_view flag, Bytes& limit, Bytes bytes) {
    if (limit == 0 || bytes <= limit) return;
    limit = round_up(bytes, mebibyte);
    flags += fmt::format("{}{} {}", flags.empty() ? "" : " ", flag, size_text(limit));
  };
  raise("--device-memory", raised.device, wanted.device_bytes);
  raise("--host-memory", raised.host, wanted.host_bytes);
  if (!flags.empty() && raised.allow(wanted)) changes.push_back(flags);
  text += changes.empty() ? " Give smaller --sizes."
                          : fmt::format(" It fits with {}.", fmt::join(changes, ", or as it is with "));
  return DoesNotFit(text);
}

}  // namespace

BenchFlags::BenchFlags(CLI::App& command, std::vector<Bytes> default_sizes, Bytes smallest_size)
    : default_sizes_(std::move(default_sizes)), smallest_size_(smallest_size) {
  const auto add = [&](const char* flag, std::vector<std::string>& values, const std::string& meaning,
                       const char* type) {
    collect_values(command.add_option(flag, values, meaning))->type_name(type);
  };
  add("--sizes", given_sizes_, fmt::format("sizes to measure (default {})", text_of(default_sizes_)),
      "SIZE,SIZE,...");
  add("--seconds", seconds_, "time measured for each case (default 0.5)", "SECONDS");
  add("--device", device_, "cpu or cuda (default cpu)", "KIND");
  add("--device-memory", device_memory_, "most that may be taken of the device (default what is needed)",
      "SIZE");
  add("--host-memory", host_memory_, "most that may be taken of the host (default what is needed)", "SIZE");
  command.add_flag("--json", json_, "print one JSON object");
}

std::vector<Bytes> BenchFlags::sizes() const {
  if (given_sizes_.empty()) return default_sizes_;
  std::vector<Bytes> sizes;
  const std::string& text = only_value("--sizes", given_sizes_);
  for (std::size_t start = 0; start <= text.size();) {
    const std::size_t end = std::min(text.find(',', start), text.size());
    const std::string size = text.substr(start, end - start);
    sizes.push_back(parse_bytes(size, "--sizes"));
    if (sizes.back() < smallest_size_ || sizes.back() > largest_size)
      throw UsageError(fmt::format("--sizes: \"{}\" is not a size from {} to {}.", shortened(size),
                                   smallest_size_ == 1 ? "1 byte" : fmt::format("{} bytes", smallest_size_),
                                   size_text(largest_size)));
    start = end + 1;
  }
  std::sort(sizes.begin(), sizes.end());
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  return sizes;
}

BenchOptions BenchFlags::options() const {
  BenchOptions options{.sizes = sizes()};
  constexpr double least = 0.001, most = 3600;
  if (!seconds_.empty())
    options.seconds_per_case = parse_seconds(only_value("--seconds", seconds_), "--seconds", least, most);
  return options;
}

DeviceKind BenchFlags::device() const {
  if (device_.empty()) return DeviceKind::cpu;
  constexpr std::array<std::string_view, 2> names = {"cpu", "cuda"};  // in the order of DeviceKind
  const std::string& given = only_value("--device", device_);
  const auto found = std::find(names.begin(), names.end(), given);
  if (found != names.end()) return static_cast<DeviceKind>(found - names.begin());
  const std::string nearest = nearest_name(given, names);
  throw UsageError(fmt::format("--device: \"{}\" is not one of cpu, cuda.{}", shortened(given),
                               nearest.empty() ? "" : fmt::format(" Did you mean {}?", nearest)));
}

BenchMemory BenchFlags::require_memory(const Need& need, const LaunchInfo& launch) const {
  const Limits limits{.device = limit_of("--device-memory", device_memory_),
                      .host = limit_of("--host-memory", host_memory_),
                      .device_available = available_device_memory(device(), launch),
                      .host_available = available_host_memory() / static_cast<Bytes>(launch.local_size),
                      .device_is_host = device() == DeviceKind::cpu};
  const std::vector<Bytes> wanted = sizes();
  const BenchMemory memory = need(wanted.back());
  if (!limits.allow(memory)) throw does_not_fit(wanted, need, limits);
  return memory;
}

std::vector<std::string> words_of(const std::string& flag, const std::vector<std::string>& given) {
  const std::string& text = only_value(flag, given);
  std::vector<std::string> words;
  for (std::size_t start = 0; start <= text.size();) {
    const std::size_t end = std::min(text.find(',', start), text.size());
    words.push_back(text.substr(start, end - start));
    start = end + 1;
  }
  return words;
}

std::vector<std::size_t> places_of(const std::string& flag, const std::vector<std::string>& given,
                                   std::span<const std::string_view> known) {
  const std::vector<std::string_view> names(known.begin(), known.end());
  std::set<std::size_t> places;
  for (const std::string& word : words_of(flag, given)) {
    const auto found = std::find(names.begin(), names.end(), word);
    if (found == names.end()) {
      const std::string nearest = nearest_name(word, names);
      throw UsageError(fmt::format("{}: \"{}\" is not one of {}.{}", flag, shortened(word),
                                   fmt::join(names, ", "),
                                   nearest.empty() ? "" : fmt::format(" Did you mean {}?", nearest)));
    }
    places.insert(static_cast<std::size_t>(found - names.begin()));
  }
  return {places.begin(), places.end()};
}

double parse_link_rate(const std::string& text, const std::string& flag) {
  constexpr Bytes slowest = 1'000'000;
  const Bytes rate = parse_bytes(text.ends_with("/s") ? text.substr(0, text.size() - 2) : text, flag);
  if (rate < slowest)
    throw UsageError(fmt::format(
        "{}: \"{}\" is less than the slowest link there is a use for, 1MB/s. Write a rate like 8GB/s.", flag,
        shortened(text)));
  return static_cast<double>(rate);
}

double parse_seconds(const std::string& text, const std::string& flag, double least, double most) {
  double seconds = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (error != std::errc{} || end != text.data() + text.size() || !(seconds >= least) || seconds > most)
    throw UsageError(
        fmt::format("{}: \"{}\" is not a number from {} to {}.", flag, shortened(text), least, most));
  return seconds;
}

}  // namespace headrace::cli

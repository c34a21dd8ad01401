// What every benchmark of `headrace bench` takes from the command line, and the memory it may have.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/backends.h"
#include "headrace/bench.h"
#include "src/cli/commands.h"

namespace headrace::cli {

class BenchFlags {
 public:
  BenchFlags(CLI::App& command, std::vector<Bytes> default_sizes, Bytes smallest_size);
  // After parsing; each throws UsageError.
  BenchOptions options() const;
  DeviceKind device() const;
  bool json() const { return json_; }

  // What a benchmark needs, where its largest size is this one.
  using Need = std::function<BenchMemory(Bytes largest_size)>;
  // What options() need. Throws DoesNotFit, saying what would fit, where that is more than the limits or this
  // rank's share of the machine.
  BenchMemory require_memory(const Need& need, const LaunchInfo& launch) const;

 private:
  std::vector<Bytes> sizes() const;

  std::vector<Bytes> default_sizes_;
  Bytes smallest_size_;
  std::vector<std::string> given_sizes_, seconds_, device_, device_memory_, host_memory_;
  bool json_ = false;
};

// The words between the commas of a flag's value.
std::vector<std::string> words_of(const std::string& flag, const std::vector<std::string>& given);
// The places among `known` of the words of a flag's value, each once, in rising order.
std::vector<std::size_t> places_of(const std::string& flag, const std::vector<std::string>& given,
                                   std::span<const std::string_view> known);
// "8GB/s" as bytes a second, not slower than any link there is.
double parse_link_rate(const std::string& text, const std::string& flag);
double parse_seconds(const std::string& text, const std::string& flag, double least, double most);

}  // namespace headrace::cli

// The frame of a benchmark [Note: rounds]: finds how many operations a sample takes, then alternates the
// cases.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "headrace/bench.h"

namespace headrace {

struct BenchCase {
  std::string name;
  std::function<double(std::uint64_t count)> sample;  // seconds that `count` operations took
};

// What follows a sample must be the same on every rank, so the ranks agree on what they saw of it.
struct Observation {
  double seconds = 0;
  std::uint64_t stop_requested = 0;
};
using Agree = std::function<Observation(const Observation& own)>;

inline constexpr int most_rounds = 9, fewest_rounds = 3;
inline constexpr std::uint64_t most_operations = 1
                                                 << 14;  // of one sample: all of them wait in a lane's queue

struct Rounds {
  std::vector<std::vector<double>> seconds;  // of one operation: by case, then by round
  bool stopped = false;
};

Rounds measure_rounds(std::span<const BenchCase> cases, double seconds_per_case, const BenchControl& control,
                      const Agree& agree);

}  // namespace headrace

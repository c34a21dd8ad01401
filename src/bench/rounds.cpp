#include "src/bench/rounds.h"

#include <algorithm>

namespace headrace {
namespace {

class RoundsOfCases {
 public:
  RoundsOfCases(std::span<const BenchCase> cases, double seconds_per_case, const BenchControl& control,
                const Agree& agree)
      : cases_(cases),
        seconds_per_case_(seconds_per_case),
        control_(control),
        agree_(agree),
        operations_(cases.size()),
        spent_(cases.size()) {
    rounds_.seconds.resize(cases.size());
  }

  Rounds run() {
    for (std::size_t c = 0; c < cases_.size() && !rounds_.stopped; ++c) {
      tell(c);
      find_operations(c);
    }
    for (int round = 0; round < most_rounds; ++round)
      for (std::size_t c = 0; c < cases_.size() && !rounds_.stopped; ++c) {
        tell(c);
        if (round < fewest_rounds || spent_[c] < seconds_per_case_) take_sample(c);
      }
    return std::move(rounds_);
  }

 private:
  void tell(std::size_t c) {
    const double steps = static_cast<double>(cases_.size()) * (1 + most_rounds);
    if (control_.progress) control_.progress(static_cast<double>(steps_++) / steps, cases_[c].name);
  }

  double sample(std::size_t c, std::uint64_t operations) {
    const double seconds = cases_[c].sample(operations);
    const bool stop = control_.stop_requested && control_.stop_requested();
    const Observation seen = agree_({.seconds = seconds, .stop_requested = stop ? 1u : 0u});
    rounds_.stopped = seen.stop_requested != 0;
    return std::max(seen.seconds, 1e-9);
  }

  // Grows the sample until it is long enough to be extrapolated. Its time is not kept: first operations are
  // slower.
  void find_operations(std::size_t c) {
    constexpr double fastest_growth = 16;
    const double wanted = seconds_per_case_ / most_rounds;
    std::uint64_t operations = 1;
    for (;;) {
      const double seconds = sample(c, operations);
      const double growth = wanted / seconds;
      operations_[c] = static_cast<std::uint64_t>(
          std::clamp(static_cast<double>(operations) * growth, 1.0, static_cast<double>(most_operations)));
      if (growth < fastest_growth / 4 || operations == most_operations || rounds_.stopped) return;
      operations = std::min({operations_[c], operations * static_cast<std::uint64_t>(fastest_growth)});
    }
  }

  void take_sample(std::size_t c) {
    const double seconds = sample(c, operations_[c]);
    spent_[c] += seconds;
    rounds_.seconds[c].push_back(seconds / static_cast<double>(operations_[c]));
  }

  std::span<const BenchCase> cases_;
  double seconds_per_case_;
  const BenchControl& control_;
  const Agree& agree_;
  std::vector<std::uint64_t> operations_;
  std::vector<double> spent_;
  Rounds rounds_;
  std::size_t steps_ = 0;
};

}  // namespace

Rounds measure_rounds(std::span<const BenchCase> cases, double seconds_per_case, const BenchControl& control,
                      const Agree& agree) {
  return RoundsOfCases(cases, seconds_per_case, control, agree).run();
}

}  // namespace headrace

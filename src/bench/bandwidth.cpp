#include "headrace/bench.h"

namespace headrace {
namespace {

double bus_factor(Collective collective, int ranks) {
  const double n = ranks;
  switch (collective) {
    case Collective::all_gather:
    case Collective::reduce_scatter:
    case Collective::all_to_all:
      return (n - 1) / n;
    case Collective::all_reduce:
      return 2 * (n - 1) / n;
    case Collective::broadcast:
      break;
  }
  return 1;
}

}  // namespace

std::string_view name_of(Collective collective) {
  constexpr std::string_view names[] = {"all_gather", "reduce_scatter", "all_reduce", "broadcast",
                                        "all_to_all"};
  return names[static_cast<std::size_t>(collective)];
}

CollectiveBandwidth collective_bandwidth(Collective collective, Bytes bytes, double seconds, int ranks) {
  const double algorithm = static_cast<double>(bytes) / seconds * 1e-9;
  return {.algorithm = algorithm, .bus = algorithm * bus_factor(collective, ranks)};
}

}  // namespace headrace

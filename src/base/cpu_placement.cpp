#include "headrace/cpu_placement.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <sstream>

#include "src/base/apportion.h"

namespace headrace {
namespace {

// Adds the CPUs of `from` that are in `mask` and that no home has yet.
void take_cpus(NodeThreads& home, const std::vector<int>& from, std::vector<int>& mask) {
  for (const int cpu : from) {
    const auto found = std::find(mask.begin(), mask.end(), cpu);
    if (found == mask.end()) continue;
    home.cpus.push_back(cpu);
    mask.erase(found);
  }
}

// The CPUs of the mask by the nearest node with memory: of several nodes that hwloc calls local to a CPU (a
// socket's DRAM and HBM, memory behind CXL for the whole machine), the one with the fewest CPUs, the first of
// equals. In the order of the nodes; CPUs that no such node has come last.
std::vector<NodeThreads> homes_of(const std::vector<NumaNode>& nodes, std::vector<int> mask) {
  struct Candidate {
    int node;
    std::vector<int> cpus;
  };
  std::vector<Candidate> nearest_first;
  for (const NumaNode& node : nodes)
    if (node.memory_bytes > 0) nearest_first.push_back({node.index, cpus_of_list(node.cpus)});
  std::stable_sort(nearest_first.begin(), nearest_first.end(),
                   [](const Candidate& a, const Candidate& b) { return a.cpus.size() < b.cpus.size(); });
  std::vector<NodeThreads> homes;
  for (const Candidate& candidate : nearest_first) {
    NodeThreads home{.node = candidate.node, .cpus = {}, .threads = 0};
    take_cpus(home, candidate.cpus, mask);
    if (!home.cpus.empty()) homes.push_back(std::move(home));
  }
  std::sort(homes.begin(), homes.end(),
            [](const NodeThreads& a, const NodeThreads& b) { return a.node < b.node; });
  if (!mask.empty() && !homes.empty()) homes.push_back({.node = -1, .cpus = std::move(mask), .threads = 0});
  return homes;
}

// How many CPUs of each home this rank may count on.
std::vector<std::uint64_t> share_of_rank(const std::vector<NodeThreads>& homes, const CpuLimits& limits) {
  std::uint64_t cpus = 0;
  for (const NodeThreads& home : homes) cpus += home.cpus.size();
  const auto ranks =
      static_cast<std::uint64_t>(limits.bound_by_launcher ? 1 : std::max(1, limits.local_ranks));
  const std::uint64_t rank = std::min(static_cast<std::uint64_t>(std::max(0, limits.local_rank)), ranks - 1);
  std::uint64_t first = cpus * rank / ranks, last = cpus * (rank + 1) / ranks;
  if (first == last) first = std::min(first, cpus - 1), last = first + 1;  // more ranks than CPUs
  std::vector<std::uint64_t> share;
  std::uint64_t start = 0;
  for (const NodeThreads& home : homes) {
    const std::uint64_t end = start + home.cpus.size();
    share.push_back(std::max(std::min(last, end), std::max(first, start)) - std::max(first, start));
    start = end;
  }
  return share;
}

std::vector<NodeThreads> with_memory(std::vector<NodeThreads> placement) {
  std::erase_if(placement, [](const NodeThreads& home) { return home.node < 0; });
  return placement;
}

// Deals one turn after another; what rounding to whole blocks gave a node too much or too little is made good
// in the next.
struct Dealing {
  const std::vector<NodeThreads>& homes;
  std::span<const Bytes> block_bytes;
  std::vector<double> dealt;  // bytes, one a home
  std::vector<NodeRun>& runs;
  std::size_t next = 0;  // block
  Bytes position = 0;

  // Blocks [next, last).
  void deal_turn(std::size_t last) {
    Bytes turn_end = position;
    for (std::size_t b = next; b < last; ++b) turn_end += block_bytes[b];
    double threads = 0;
    for (const NodeThreads& home : homes) threads += home.threads;
    for (std::size_t h = 0; h + 1 < homes.size(); ++h)
      give(h, last, static_cast<double>(turn_end) * homes[h].threads / threads - dealt[h]);
    give(homes.size() - 1, last, static_cast<double>(turn_end));  // all that is left
  }

  // Blocks before `last` up to the border nearest to so many bytes.
  void give(std::size_t home, std::size_t last, double bytes) {
    const Bytes begin = position;
    while (next < last &&
           static_cast<double>(position - begin) + static_cast<double>(block_bytes[next]) / 2 <= bytes)
      position += block_bytes[next++];
    if (position == begin) return;
    dealt[home] += static_cast<double>(position - begin);
    if (!runs.empty() && runs.back().node == homes[home].node)
      runs.back().end = position;
    else
      runs.push_back({.node = homes[home].node, .begin = begin, .end = position});
  }
};

}  // namespace

std::vector<int> cpus_of_list(const std::string& list) {
  std::vector<int> cpus;
  std::istringstream parts(list);
  for (std::string part; std::getline(parts, part, ',');) {
    int first = 0, last = 0;
    char dash = 0;
    std::istringstream range(part);
    if (!(range >> first)) continue;
    if (!(range >> dash >> last)) last = first;
    for (int cpu = first; cpu <= last; ++cpu) cpus.push_back(cpu);
  }
  return cpus;
}

std::vector<NodeThreads> place_threads(const std::vector<NumaNode>& nodes, const CpuLimits& limits,
                                       int threads) {
  std::vector<NodeThreads> homes = homes_of(nodes, limits.affinity);
  if (homes.size() <= 1) return {};
  const std::vector<std::uint64_t> parts =
      apportion(static_cast<std::uint64_t>(threads), share_of_rank(homes, limits));
  for (std::size_t h = 0; h < homes.size(); ++h) homes[h].threads = static_cast<int>(parts[h]);
  std::erase_if(homes, [](const NodeThreads& home) { return home.threads == 0; });
  return homes;
}

std::vector<NodeRun> deal_blocks(const std::vector<NodeThreads>& placement,
                                 std::span<const Bytes> block_bytes, std::size_t turn_blocks) {
  const std::vector<NodeThreads> homes = with_memory(placement);
  std::vector<NodeRun> runs;
  if (homes.empty() || block_bytes.empty()) return runs;
  Dealing dealing{homes, block_bytes, std::vector<double>(homes.size()), runs};
  const std::size_t turn = turn_blocks == 0 ? block_bytes.size() : turn_blocks;
  for (std::size_t begin = 0; begin < block_bytes.size(); begin += turn)
    dealing.deal_turn(std::min(begin + turn, block_bytes.size()));
  return runs;
}

std::vector<NodeRun> divide_array(const std::vector<NodeThreads>& placement, Bytes bytes) {
  constexpr Bytes page_bytes = 4096;
  const std::vector<NodeThreads> homes = with_memory(placement);
  Bytes threads = 0, before = 0, begin = 0;
  for (const NodeThreads& home : homes) threads += static_cast<Bytes>(home.threads);
  std::vector<NodeRun> runs;
  for (const NodeThreads& home : homes) {
    before += static_cast<Bytes>(home.threads);
    const Bytes end = before == threads ? bytes : bytes / page_bytes * before / threads * page_bytes;
    if (end > begin) runs.push_back({.node = home.node, .begin = begin, .end = end});
    begin = end;
  }
  return runs;
}

std::string describe(const std::vector<NodeThreads>& placement) {
  std::string text;
  for (const NodeThreads& home : placement)
    text += fmt::format("{}{}: {} thread{}", text.empty() ? "" : ", ",
                        home.node < 0 ? "no node" : fmt::format("node {}", home.node), home.threads,
                        home.threads == 1 ? "" : "s");
  return text;
}

}  // namespace headrace

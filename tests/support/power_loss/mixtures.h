// Which of the unflushed changes of a LossyDisk are lost, kept or torn in the disks that a replay tries.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <random>
#include <vector>

#include "tests/support/power_loss/lossy_disk.h"

namespace headrace::testing {

// The mixtures tried of `changes` unflushed changes: all lost, all kept, each one alone lost, kept or torn,
// and random ones.
inline std::vector<std::vector<Fate>> mixtures(std::size_t changes, std::size_t random_ones,
                                               std::mt19937& random) {
  std::vector<std::vector<Fate>> all;
  for (const Fate others : {Fate::lose, Fate::keep}) {
    all.emplace_back(changes, others);
    for (std::size_t one = 0; one < changes; ++one)
      for (const Fate fate : {Fate::lose, Fate::keep, Fate::tear})
        if (fate != others) {
          all.emplace_back(changes, others);
          all.back()[one] = fate;
        }
  }
  for (std::size_t i = 0; changes > 0 && i < random_ones; ++i) {
    const unsigned keep_percent = std::array{10u, 50u, 90u}[i % 3];
    all.emplace_back();
    for (std::size_t one = 0; one < changes; ++one)
      all.back().push_back(random() % 3 == 0               ? Fate::tear
                           : random() % 100 < keep_percent ? Fate::keep
                                                           : Fate::lose);
  }
  return all;
}

// How many of them a replay tries at each moment; those that lose all and keep all are always among them.
struct Effort {
  std::size_t random_ones = 0, at_most = 0;
  bool one_order = false;  // of names, in turn
};

inline std::vector<std::vector<Fate>> some_mixtures(std::size_t changes, Effort effort,
                                                    std::mt19937& random) {
  std::vector<std::vector<Fate>> all = mixtures(changes, effort.random_ones, random);
  if (all.size() <= effort.at_most) return all;
  std::shuffle(all.begin(), all.end(), random);
  all.resize(effort.at_most);
  all.emplace_back(changes, Fate::lose);
  all.emplace_back(changes, Fate::keep);
  return all;
}

}  // namespace headrace::testing

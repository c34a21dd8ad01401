// Damage that was found in what was read, by folder, and what is said of it: a line a swap path.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "headrace/swap_store.h"

namespace headrace {

class Damage {
 public:
  struct Pieces {
    std::uint64_t read = 0, damaged = 0;
    std::string first;  // what is wrong with the first damaged one
  };
  // A block of these pieces was read, and `found` damaged, of a store with parity or without. Of its pieces
  // `spare` may be damaged: less than its parity where paths are lost.
  void add(const std::vector<SwapStore::Extent>& pieces, const std::vector<SwapStore::DamagedPiece>& found,
           bool parity, std::uint32_t spare);
  Pieces in(const std::string& folder) const;
  bool is_whole() const { return lost_blocks_ == 0; }  // what was read, if need be by parity
  // `swap_paths`: all of the stores', for the command that repairs them.
  std::vector<std::string> lines(const std::vector<std::string>& swap_paths) const;

 private:
  std::map<std::string, Pieces> folders_;
  std::uint64_t damaged_blocks_ = 0, lost_blocks_ = 0;
  std::string first_lost_;
  bool parity_ = false;
};

// The folder that --swap-path named: above that of the rank.
std::string swap_path_of(const std::string& folder);

}  // namespace headrace

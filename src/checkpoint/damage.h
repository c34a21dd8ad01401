// Damage that was found, by swap path: one line a path, and the details for those who ask.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "headrace/swap_store.h"

namespace headrace {

class Damage {
 public:
  // A block's pieces were read: `found` says in words what is wrong with which of them.
  void add_pieces(const std::vector<SwapStore::Extent>& pieces, std::uint32_t parity,
                  const std::vector<std::string>& found);
  // A whole block cannot be read; without parity it is one piece.
  void add_block(const std::vector<SwapStore::Extent>& pieces, const std::string& error);
  // A block of which nothing is wrong.
  void add_good(const std::vector<SwapStore::Extent>& pieces);
  // `swap_paths`: all of the store's, for the command that repairs it.
  std::vector<std::string> lines(const std::vector<std::string>& swap_paths, bool details) const;

 private:
  struct Path {
    std::uint64_t pieces = 0, damaged = 0;
    std::string first;  // what is wrong with the first damaged piece
  };
  std::map<std::string, Path> paths_;  // by swap path, the folder above the rank's
  std::vector<std::string> details_;
  std::uint64_t unreadable_ = 0;  // blocks
  std::string first_unreadable_;
  bool parity_ = false;
};

// The folder that --swap-path named: above the one of the rank.
std::string swap_path_of(const std::string& rank_folder);

}  // namespace headrace

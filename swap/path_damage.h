// Damaged pieces that an open store meets on its paths, and when a path with many of them is better done
// without.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

namespace headrace::swap {

class PathDamage {
 public:
  static constexpr std::uint64_t most_pieces = 32;  // damaged ones of a path that is still read

  explicit PathDamage(std::uint32_t paths) : paths_(paths) {}
  // Whether this version of the piece at `offset` was not met before; it counts then.
  bool note(std::uint32_t path, std::uint64_t offset, std::uint64_t generation);
  // A further piece, whichever it is.
  void note(std::uint32_t path) { ++paths_[path].pieces; }
  std::uint64_t pieces(std::uint32_t path) const { return paths_[path].pieces; }
  // Whether to go on without the path; `lost` has a bit for each path that is lost already. Its good pieces
  // are given up with it, so it stays as long as other paths have damage that parity could then not rebuild.
  bool is_too_much(std::uint32_t path, std::uint64_t lost, std::uint32_t parity) const;

 private:
  struct Path {
    std::uint64_t pieces = 0;
    std::map<std::uint64_t, std::uint64_t> newest;  // generation met, by offset
  };
  std::vector<Path> paths_;
};

}  // namespace headrace::swap

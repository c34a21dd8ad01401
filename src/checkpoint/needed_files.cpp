#include "src/checkpoint/needed_files.h"

#include <algorithm>

namespace headrace {

std::vector<bool> needed_files(const Manifest& manifest, const Engine& engine,
                               const std::map<const ParameterSpec*, std::uint32_t>& numbers) {
  struct Part {
    std::uint64_t first = ~std::uint64_t{0}, end = 0;
  };
  std::vector<Part> parts(manifest.parameters.size());  // a rank's pieces of a parameter lie end to end
  for (const StatePiece& piece : engine.pieces_to_fill()) {
    Part& part = parts[numbers.at(piece.parameter)];
    part.first = std::min(part.first, piece.first);
    part.end = std::max(part.end, piece.first + piece.numel);
  }
  std::vector<bool> needed(manifest.files.size());
  for (const ManifestSlice& slice : manifest.slices) {
    const Part& part = parts[slice.parameter];
    if (slice.first < part.end && slice.first + slice.numel > part.first) needed[slice.file] = true;
  }
  return needed;
}

}  // namespace headrace

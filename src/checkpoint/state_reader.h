// The states of a checkpoint, wherever they are: in its own files, or in the pinned versions of swap stores.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "headrace/memory.h"
#include "src/checkpoint/slice_reader.h"

namespace headrace {

class StateReader {
 public:
  using Visit = SliceReader::Visit;
  using Piece = ParameterRange;
  virtual ~StateReader() = default;
  virtual const Manifest& manifest() const = 0;
  // As SliceReader's.
  virtual void expect(std::vector<ParameterRange> ranges) = 0;
  virtual void read(std::uint32_t parameter, std::uint64_t first, std::uint64_t numel,
                    const Visit& visit) = 0;
  // What each rank that saved answers for, in the order in which it is read at least cost.
  virtual std::vector<std::vector<Piece>> pieces_by_rank() const = 0;
};

// Throws CorruptData naming what is missing. Takes memory for one piece, or one block of a swap store. In
// swap stores it is they that rebuild.
std::unique_ptr<StateReader> open_states(const std::string& path, Manifest manifest, IoEngine& io,
                                         MemoryBudget& budget, Rebuilding rebuilding = {},
                                         SliceReader::What what = SliceReader::What::states);
Bytes memory_to_read(const Manifest& manifest);  // what it takes, but for rebuilding

}  // namespace headrace

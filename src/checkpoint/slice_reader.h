// Reads elements of parameters from a checkpoint's files: whole slices at a time, each checked against its
// CRC32C, the last one of every array kept, since neighbours are asked for next.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "headrace/engine_states.h"
#include "headrace/io_engine.h"
#include "headrace/io_file.h"
#include "src/checkpoint/manifest.h"
#include "src/checkpoint/stored_arrays.h"

namespace headrace {

class SliceReader {
 public:
  enum class What : std::uint8_t { states, masters_alone };
  // `memory`: memory_bytes(manifest), page-aligned. Throws CorruptData where slices overlap or leave
  // something out, and where files are missing or of another size: all of them. `needed` says of each file
  // whether anything will be read from it; empty: from all.
  SliceReader(const std::string& folder, Manifest manifest, IoEngine& engine, std::span<std::byte> memory,
              What what = What::states, const std::vector<bool>& needed = {});
  static Bytes memory_bytes(const Manifest& manifest);

  const Manifest& manifest() const { return manifest_; }
  const std::vector<StoredArray>& arrays() const { return arrays_; }

  // The states of elements [first, first + numel) of a parameter: calls visit(at, numel, states) for parts
  // end to end, `states` of the manifest's format, its arrays' elements [at, at + numel). Throws CorruptData
  // naming file, parameter and array, or IoError.
  using Visit = std::function<void(std::uint64_t at, std::uint64_t numel, const StateArrays& states)>;
  void read(std::uint32_t parameter, std::uint64_t first, std::uint64_t numel, const Visit& visit);

 private:
  void check_files(const std::vector<bool>& needed) const;
  void index_slices();
  // The slices of one array that hold a piece lie alike in the other arrays: loads all of them.
  void load(std::uint32_t parameter, std::size_t piece);
  IoFile& file(std::uint32_t index);

  std::string folder_;
  Manifest manifest_;
  IoEngine& engine_;
  std::vector<StoredArray> arrays_;
  std::size_t read_arrays_;  // the first so many of them
  std::vector<std::optional<IoFile>> files_;
  std::vector<std::vector<std::uint32_t>> pieces_;  // by parameter: its slices of array 0, by first element
  std::vector<std::vector<std::uint32_t>> others_;  // by slice of array 0: those of all arrays
  std::vector<std::span<std::byte>> buffers_;       // by array
  StateArrays loaded_states_;
  std::uint32_t loaded_ = ~0u;  // slice of array 0
};

}  // namespace headrace

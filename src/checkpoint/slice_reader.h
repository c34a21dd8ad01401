// Reads elements of parameters from a checkpoint's files: whole slices at a time, each checked against its
// CRC32C, the last one of every array kept, since neighbours are asked for next. What is damaged or missing
// is rebuilt by parity, where there is some. The files' own headers are for other programs and are not read:
// the manifest, which has a checksum of its own, places every slice.
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
#include "headrace/memory.h"
#include "src/checkpoint/checkpoint_stripes.h"
#include "src/checkpoint/manifest.h"
#include "src/checkpoint/stored_arrays.h"

namespace headrace {

// For rebuilding: checkpoint_rebuild_bytes at most are taken from `budget` (empty: not counted) when it is
// needed. Each damaged file is told once.
struct Rebuilding {
  std::vector<bool> needed = {};  // by file of a rank: whether anything will be read from it; empty: from all
  MemoryBudget* budget = nullptr;
  std::function<void(const std::string& problem)> on_damage = {};
};

class SliceReader {
 public:
  enum class What : std::uint8_t { states, masters_alone };
  // `memory`: memory_bytes(manifest), page-aligned. Throws CorruptData where slices overlap or leave
  // something out, and where more files than parity makes up for are missing or of another size: all of them.
  SliceReader(const std::string& folder, Manifest manifest, IoEngine& engine, std::span<std::byte> memory,
              What what = What::states, Rebuilding rebuilding = {});
  static Bytes memory_bytes(const Manifest& manifest);

  const Manifest& manifest() const { return manifest_; }
  const std::vector<StoredArray>& arrays() const { return arrays_; }

  // The states of elements [first, first + numel) of a parameter: calls visit(at, numel, states) for parts
  // end to end, `states` of the manifest's format, its arrays' elements [at, at + numel). Throws CorruptData
  // naming file, parameter and array, or IoError.
  using Visit = std::function<void(std::uint64_t at, std::uint64_t numel, const StateArrays& states)>;
  void read(std::uint32_t parameter, std::uint64_t first, std::uint64_t numel, const Visit& visit);

 private:
  void check_files(const std::vector<bool>& needed);
  void index_slices();
  // The slices of one array that hold a piece lie alike in the other arrays: loads all of them.
  void load(std::uint32_t parameter, std::size_t piece);
  IoFile* file(std::uint32_t index);
  IoTicket submit(std::size_t array, const ManifestSlice& slice);
  void check(std::size_t array, const ManifestSlice& slice, IoTicket& ticket);
  void rebuild(std::size_t array, const ManifestSlice& slice);
  void read_stripe(std::uint64_t stripe);
  void note_damage(std::uint32_t file, std::string_view what);

  std::string folder_;
  Manifest manifest_;
  IoEngine& engine_;
  std::vector<StoredArray> arrays_;
  std::size_t read_arrays_;  // the first so many of them
  struct OpenFile {
    std::optional<IoFile> file;
    bool tried = false;
  };
  std::vector<OpenFile> files_;
  std::vector<std::vector<std::uint32_t>> pieces_;  // by parameter: its slices of array 0, by first element
  std::vector<std::vector<std::uint32_t>> others_;  // by slice of array 0: those of all arrays
  std::vector<std::span<std::byte>> buffers_;       // by array
  StateArrays loaded_states_;
  std::uint32_t loaded_ = ~0u;  // slice of array 0

  Rebuilding rebuilding_;
  MemoryBudget uncounted_{"host", ~Bytes{0}};
  HostBuffer stripe_memory_;
  std::optional<CheckpointStripes> stripes_;
  std::optional<std::uint64_t> stripe_;  // that is rebuilt
  std::vector<bool> damaged_;            // files that were told of
};

}  // namespace headrace

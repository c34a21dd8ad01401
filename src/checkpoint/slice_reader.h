// Reads elements of parameters from a checkpoint's files: whole slices at a time, each checked against its
// CRC32C, the last one of every array kept, since neighbours are asked for next. What the caller says that it
// expects is read ahead. What is damaged or missing is rebuilt by parity, where there is some. The files' own
// headers are for other programs and are not read: the manifest, which has a checksum of its own, places
// every slice.
#pragma once

#include <cstdint>
#include <deque>
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
#include "src/checkpoint/read_ring.h"
#include "src/checkpoint/stored_arrays.h"

namespace headrace {

// For rebuilding: checkpoint_rebuild_bytes at most are taken from `budget` (empty: not counted) when it is
// needed. Each damaged file is told once.
struct Rebuilding {
  std::vector<bool> needed = {};  // by file of a rank: whether anything will be read from it; empty: from all
  MemoryBudget* budget = nullptr;
  std::function<void(const std::string& problem)> on_damage = {};
};

// Elements [first, first + numel) of a parameter.
struct ParameterRange {
  std::uint32_t parameter = 0;
  std::uint64_t first = 0, numel = 0;
};

class SliceReader {
 public:
  enum class What : std::uint8_t { states, masters_alone };
  // `memory`: memory_bytes(manifest, what), page-aligned. Throws CorruptData where slices overlap or leave
  // something out, and where more files than parity makes up for are missing or of another size: all of them.
  SliceReader(const std::string& folder, Manifest manifest, IoEngine& engine, std::span<std::byte> memory,
              What what = What::states, Rebuilding rebuilding = {});
  // What the arrays of one piece take, and where that is less checkpoint_memory_bytes.
  static Bytes memory_bytes(const Manifest& manifest, What what = What::states);

  const Manifest& manifest() const { return manifest_; }
  const std::vector<StoredArray>& arrays() const { return arrays_; }

  // What read() will be asked for, in this order; in place of what was expected before. What is asked for out
  // of order ends it.
  void expect(std::vector<ParameterRange> ranges);

  // The states of elements [first, first + numel) of a parameter: calls visit(at, numel, states) for parts
  // end to end, `states` of the manifest's format, its arrays' elements [at, at + numel). Throws CorruptData
  // naming file, parameter and array, or IoError.
  using Visit = std::function<void(std::uint64_t at, std::uint64_t numel, const StateArrays& states)>;
  void read(std::uint32_t parameter, std::uint64_t first, std::uint64_t numel, const Visit& visit);

 private:
  void check_files(const std::vector<bool>& needed);
  void index_slices();
  std::size_t piece_at(std::uint32_t parameter, std::uint64_t element) const;
  // The slices of one array that hold a piece lie alike in the other arrays: all of them are a set.
  struct Set {
    std::uint32_t slice = 0;  // of array 0
    bool checked = false;
    std::vector<std::span<std::byte>> buffers;  // by array
    std::vector<IoTicket> tickets;
  };
  const ManifestSlice& slice_of(const Set& set, std::size_t array) const;
  Bytes ring_bytes(std::uint32_t slice) const;
  bool submit(std::uint32_t slice);  // false where there is no room for it
  std::optional<std::uint32_t> next_expected();
  void read_ahead();
  void drop_oldest();
  StateArrays load(std::uint32_t slice);
  IoFile* file(std::uint32_t index);
  void check(Set& set, std::size_t array);
  void rebuild(std::span<std::byte> out, const ManifestSlice& slice);
  void read_stripe(std::uint64_t stripe);
  void note_damage(std::uint32_t file, std::string_view what);

  std::string folder_;
  Manifest manifest_;
  IoEngine& engine_;
  std::vector<StoredArray> arrays_;
  std::size_t read_arrays_;  // the first so many of them
  ReadRing ring_;
  struct OpenFile {
    std::optional<IoFile> file;
    bool tried = false;
  };
  std::vector<OpenFile> files_;
  std::vector<std::vector<std::uint32_t>> pieces_;  // by parameter: its slices of array 0, by first element
  std::vector<std::vector<std::uint32_t>> others_;  // by slice of array 0: those of all arrays
  std::deque<Set> sets_;  // in the ring, in the order of reading; the first was asked for

  std::vector<ParameterRange> expected_;
  std::size_t expected_range_ = 0;
  std::optional<std::size_t> expected_piece_;  // of that range's parameter
  std::optional<std::uint32_t> awaited_;       // of array 0: the next to be submitted

  Rebuilding rebuilding_;
  MemoryBudget uncounted_{"host", ~Bytes{0}};
  HostBuffer stripe_memory_;
  std::optional<CheckpointStripes> stripes_;
  std::optional<std::uint64_t> stripe_;  // that is rebuilt
  std::vector<bool> damaged_;            // files that were told of
};

}  // namespace headrace

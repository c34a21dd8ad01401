// What a swap path holds: who wrote it, which steps, where the blocks lie, what the journals say, whether
// every byte is good, and the state hash of DESIGN section 9. Opens every store once, read-only, and takes no
// lock, so a running job is not disturbed (its state may move while it is read).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "headrace/bytes.h"
#include "headrace/io_engine.h"
#include "headrace/optimizer_state.h"
#include "headrace/swap_journal.h"
#include "headrace/swap_store.h"

namespace headrace {

struct InspectOptions {
  bool verify = false;  // read every committed extent and check its CRC
  bool hash = false;    // compute the state hash (reads, and so checks, the step it is of)
  bool blocks = false;  // list each block, and each damaged piece
};

// While bytes are read; both are asked by the caller's thread, once a block.
struct InspectControl {
  std::function<bool()> stop_requested{};
  std::function<void(Bytes checked, Bytes total)> progress{};
};

struct InspectedPath {
  SwapPath facts;                                // damaged too where damage was found in what was read
  std::optional<SwapJournal> journal;            // where there is one that can be read
  std::uint64_t pieces = 0, damaged_pieces = 0;  // of blocks, that were read; without parity: blocks
};

// A piece of a block that is not as it was written; without parity it is the whole block.
struct InspectedDamage {
  std::string block;
  SwapStore::Extent extent;
  std::string problem;  // in words, with block, path and offset
};

// One block at the newest committed step.
struct InspectedBlock {
  enum class State : std::uint8_t { never_written, unchecked, good, damaged };
  std::string name;
  Bytes bytes = 0;
  State state = State::unchecked;
  std::vector<SwapStore::Extent> extents;  // of its pieces, data before parity
};

// One rank's store.
struct InspectedRank {
  std::string directory;             // of all its paths, "/a/rank-00000, /b/rank-00000"
  std::vector<InspectedPath> paths;  // its folders
  std::uint32_t parity = 0;          // paths that it can do without
  std::uint32_t rank = 0, world_size = 0;
  int stage = 0;
  std::string dtype;
  bool optimizer_sharded = false;
  StateFormat states;
  Durability durability = Durability::step;
  SwapOwner owner;
  std::vector<std::uint64_t> steps;                              // committed and whole, oldest first
  std::vector<SwapPin> pins;                                     // kept beside them, oldest first
  std::uint64_t units = 0, parameters = 0, parameter_numel = 0;  // of the whole model
  std::uint64_t blocks = 0;
  Bytes blocks_bytes = 0, extents_bytes = 0;           // one generation without padding; the extents
  Bytes disk_bytes = 0;                                // that its files take, but for the locks
  std::map<std::uint64_t, std::uint64_t> generations;  // how many blocks have which, at the newest step
  std::vector<InspectedBlock> block_list;              // where asked for
  std::vector<InspectedDamage> damage;                 // all that was found
  std::string layout_identity;                         // CRC32C and length of the layout text
  Bytes read_bytes = 0, checked_bytes = 0;             // of blocks; those with the right CRC
};

struct InspectReport {
  std::string path;  // all of them, "/a, /b"
  std::vector<InspectedRank> ranks;
  std::optional<std::uint64_t> step;                   // the newest that every rank has
  std::uint64_t steps_applied = 0, data_position = 0;  // of that step
  double loss_scale = 0;
  std::optional<std::uint64_t> state_hash;
  std::vector<std::string> notes;
  std::vector<std::string> problems;  // damage, missing ranks, disagreement, a hash that cannot be had
  bool stopped = false;               // before every byte was read: checked_bytes and problems so far
  // Where the stores were repaired first: what that did, by store. What it could not do is in `problems`.
  std::optional<std::vector<SwapRepair>> repaired;
  bool good() const { return problems.empty(); }
};

// `paths` are the swap paths of a run (folders rank-00000, rank-00001, ... inside) or the folders of one
// rank; of some of them the others are found by what these say. Throws UsageError when there is no store, a
// path cannot be read, or the paths are not those of one run; damage is reported in `problems`.
InspectReport inspect_swap_path(const std::vector<std::string>& paths, const InspectOptions& options,
                                IoEngine& engine, const InspectControl& control = {});

// The stores in the swap paths: the folders of each rank, in the order of the ranks.
std::vector<std::vector<std::string>> swap_stores_in(const std::vector<std::string>& paths);

// With the journals' records and the generations where `journal` is true; JSON always has them.
std::string to_text(const InspectReport& report, bool journal = false);
std::string to_text(const SwapRepair& repair);
std::string to_json(const InspectReport& report);  // one object; the hash is 16 hexadecimal digits

}  // namespace headrace

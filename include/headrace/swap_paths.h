// The folders that a swap store is spread over: who owns them, what is in them, what of it is lost, how much
// they hold and how fast they are.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/bytes.h"
#include "headrace/errors.h"
#include "headrace/io_engine.h"

namespace headrace {

enum class Durability : std::uint8_t { step, none };

struct SwapBlock {
  std::string name;  // stable across runs; never an address
  Bytes bytes = 0;
};

struct SwapCommit {
  std::uint64_t step = 0;
  std::string metadata;  // what the engine needs to continue, opaque here (JSON)
};

// A commit that is kept under a name, whatever is committed after it.
struct SwapPin {
  std::string name;
  SwapCommit commit;
};

// Who holds a store's lock, as far as can be told without touching it.
struct SwapOwner {
  // none: closed cleanly, or never opened; unknown: of another machine or container.
  enum class State : std::uint8_t { none, alive, dead, unknown };
  State state = State::none;
  std::uint64_t pid = 0;
  std::string host;
};

// One folder of a store.
struct SwapPath {
  // stale: the store went on without it. Only a good one is used; the others are repaired.
  enum class State : std::uint8_t { good, missing, damaged, stale, foreign };
  std::string directory;
  State state = State::good;
  std::string problem{};    // in words, without what to do about it; empty when good
  int code = 0;             // the errno value of the call that failed, if that is the problem
  Bytes extents_bytes = 0;  // of its extents.bin, all generations
  SwapOwner owner{};
};

// What a store holds, read from its small files only.
struct SwapDescription {
  Durability durability = Durability::step;
  std::string layout, layout_identity;  // the identity is short: CRC32C and length
  std::vector<SwapBlock> blocks;
  Bytes extent_alignment = 0;
  Bytes extents_bytes = 0;          // of all paths and generations
  Bytes disk_bytes = 0;             // that its files take, but for the locks
  std::vector<SwapCommit> commits;  // as SwapStore::commits()
  std::vector<SwapPin> pins;        // as SwapStore::pins()
  std::uint32_t most_pins = 0;      // that it was made for
  SwapOwner owner;                  // the live one, if any path has one
  std::uint32_t parity = 0;
  std::vector<SwapPath> paths;
};

// What SwapStore::repair did on one path.
struct SwapRepairedPath {
  std::string directory;
  std::uint64_t pieces_checked = 0, pieces_rebuilt = 0;
  Bytes bytes_rebuilt = 0;
  bool rejoined = false;  // it was lost to the store and is part of it again
};
struct SwapRepair {
  std::vector<SwapRepairedPath> paths;
  std::vector<std::string> problems;     // what could not be rebuilt, summed up, and what to do
  std::vector<std::string> lost_blocks;  // the names of those that could not
};

// The folders that were given are not those of one store, each of them once.
class WrongSwapPaths : public UsageError {
 public:
  using UsageError::UsageError;
};

// What a run needs of one file system, whose space the paths on it share.
struct DiskSpace {
  std::vector<std::string> paths;
  Bytes needed = 0, available = 0;  // available: what is free, and what is given back before it is needed
  bool is_enough() const { return needed <= available; }
};
struct PathSpace {
  std::string path;  // a folder
  Bytes needed = 0, given_back = 0;
};
// A path that cannot be looked at is an IoError, or is left out and added to `unknown`.
std::vector<DiskSpace> space_by_disk(const std::vector<PathSpace>& paths,
                                     std::vector<std::string>* unknown = nullptr);

// The shell command that brings lost paths back: it makes those of their folders that are not there first, as
// repair() would not make what they lie in. `all` are the store's folders or what holds them, the lost ones
// too.
std::string repair_command(const std::vector<std::string>& lost, const std::vector<std::string>& all);
// What to do about lost paths, as the end of a sentence without its full stop. A drive that is only not
// mounted is asked for before the command, which would rebuild what it holds on the drive below.
std::string how_to_bring_back(const std::vector<SwapPath>& lost, const std::vector<std::string>& all);

// How a run whose states are lost for good goes on, as the end of a sentence.
inline constexpr std::string_view how_to_start_anew =
    "start the run anew with --overwrite-swap, without --resume";

// Bytes per second of each folder's file system for block I/O, half reads, half writes: a short direct probe
// (at most half a second and 64 MiB a folder, deleted at once). 0 where it cannot be, or is not direct.
std::vector<double> measure_path_rates(const std::vector<std::string>& directories, IoEngine& engine);

}  // namespace headrace

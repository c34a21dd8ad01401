// What a checkpoint holds, for `inspect`: of which run and step, who wrote each file, what is missing or
// damaged. Read-only, but for the repair.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "headrace/checkpoint.h"
#include "headrace/inspect.h"

namespace headrace {

struct CheckpointFile {
  enum class State : std::uint8_t { missing, other_size, unchecked, good, damaged };
  std::string name;
  std::uint32_t rank = 0;  // who wrote it
  bool is_parity = false;  // of all ranks' files
  Bytes bytes = 0;         // that it has to have
  State state = State::unchecked;
  std::uint64_t slices = 0;
  Bytes states_bytes = 0;
};

// What a repair did.
struct CheckpointRepair {
  struct File {
    std::string name;
    std::uint64_t stripes = 0, rebuilt = 0;  // of a manifest: 0
    Bytes bytes_rebuilt = 0;
  };
  std::vector<File> files;            // that were written anew
  std::vector<std::string> problems;  // what could not be rebuilt
  Bytes checked_bytes = 0;
  bool stopped = false;  // nothing is lost: it can be started again
};

struct CheckpointReport {
  CheckpointFacts facts;
  std::uint64_t parameters = 0, parameter_numel = 0, slices = 0;
  Bytes bytes = 0;                    // of all files
  std::uint32_t parity = 0;           // so many of the files may be lost
  std::vector<CheckpointFile> files;  // those of parity last
  std::optional<std::uint64_t> state_hash;
  std::optional<CheckpointRepair> repaired;  // where that was done first
  std::vector<std::string> problems;
  Bytes checked_bytes = 0;
  bool stopped = false;
  bool good() const { return problems.empty(); }
};

// Headers are always read; `verify` reads every byte, `hash` computes the state hash too. Damage is in
// `problems`; UsageError where `path` is no checkpoint, CorruptData where its manifest is damaged.
CheckpointReport inspect_checkpoint(const std::string& path, const InspectOptions& options, IoEngine& engine,
                                    const InspectControl& control = {});
// Reads every byte and writes anew, by parity, each file that is missing or damaged; the others are not
// touched. Each is replaced when it is whole, so an end at any moment leaves what was there or what is good.
// Error where there is no parity, UsageError where a job saves beside it.
CheckpointRepair repair_checkpoint(const std::string& path, IoEngine& engine,
                                   const InspectControl& control = {});
std::string to_text(const CheckpointRepair& repair);
std::string to_text(const CheckpointReport& report);
std::string to_json(const CheckpointReport& report);

bool is_checkpoint(const std::string& path);            // it has a manifest
bool is_named_as_checkpoint(const std::string& path);   // step-00001200, or with .partial behind it
std::string not_a_checkpoint(const std::string& path);  // a sentence: what it is instead, and what to give
// `path` where it is a checkpoint, the newest where it holds some. UsageError where it is neither, or where
// one with a damaged manifest may be the newest.
std::string checkpoint_at(const std::string& path);

// One in a run's folder, by its manifest and the sizes of its files.
struct ListedCheckpoint {
  enum class State : std::uint8_t { whole, repairable, damaged, partial };
  std::string path;
  State state = State::whole;
  bool pinned = false;                          // its states are in swap stores
  std::optional<std::uint64_t> step, sequence;  // where they can be told
  std::uint32_t world_size = 0;                 // 0: cannot be told
  Bytes bytes = 0;                              // of what is there
  std::int64_t written_at = 0;                  // seconds since 1970; 0: nothing is there
  std::vector<std::string> problems;
};
// In the order of saving; before them those of which that cannot be told, after them what saves left half
// done.
std::vector<ListedCheckpoint> list_checkpoints(const std::string& directory);
bool all_whole(const std::vector<ListedCheckpoint>& listed);  // partial ones are no damage
std::string list_text(const std::string& directory, const std::vector<ListedCheckpoint>& listed);
std::string list_json(const std::string& directory, const std::vector<ListedCheckpoint>& listed);

}  // namespace headrace

// What a checkpoint holds, for `inspect`: of which run and step, who wrote each file, what is missing or
// damaged. Read-only.
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
  Bytes bytes = 0;         // that it has to have
  State state = State::unchecked;
  std::uint64_t slices = 0;
  Bytes states_bytes = 0;
};

struct CheckpointReport {
  CheckpointFacts facts;
  std::uint64_t parameters = 0, parameter_numel = 0, slices = 0;
  Bytes bytes = 0;  // of all files
  std::vector<CheckpointFile> files;
  std::optional<std::uint64_t> state_hash;
  std::vector<std::string> problems;
  Bytes checked_bytes = 0;
  bool stopped = false;
  bool good() const { return problems.empty(); }
};

// `verify` reads every byte, `hash` computes the state hash too. Damage is in `problems`; UsageError where
// `path` is no checkpoint, CorruptData where its manifest is damaged.
CheckpointReport inspect_checkpoint(const std::string& path, const InspectOptions& options, IoEngine& engine,
                                    const InspectControl& control = {});
std::string to_text(const CheckpointReport& report);
std::string to_json(const CheckpointReport& report);

// Whether the folder is a checkpoint, or holds some.
bool is_checkpoint(const std::string& path);
// A line for each checkpoint in a run's folder.
std::string list_text(const std::string& directory, const std::vector<FoundCheckpoint>& found);
std::string list_json(const std::string& directory, const std::vector<FoundCheckpoint>& found);

}  // namespace headrace

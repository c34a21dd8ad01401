// Checkpoints in the format of DESIGN section 8: a folder `step-00001200` of a safetensors file for each rank
// and a manifest, which any number of ranks, stage, tiers, block size and types of states can load.
//
// Complete or invisible: everything is written in `step-00001200.partial`, flushed, and then renamed; a
// killed save leaves what was there before. A save that fails leaves it too, and the run can go on.
//
// A pinned checkpoint is a manifest alone: its states are a version that the ranks' swap stores keep for it,
// and it can be read on this machine only, as long as they are there (pinned_checkpoints.h).
//
// Threads: the engine's owner thread. Everything here blocks but a save that begin() has begun.
// `Checkpointer` and its calls are collective: what fails on one rank is thrown by all of them.
#pragma once

#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "headrace/engine.h"
#include "headrace/owned.h"

namespace headrace {

// Host memory of saving and of loading, whatever the model, and of rebuilding what is damaged: the planner
// counts it.
inline constexpr Bytes checkpoint_memory_bytes = Bytes{16} << 20;
inline constexpr Bytes checkpoint_rebuild_bytes = Bytes{8} << 20;
inline constexpr std::uint32_t most_parity_files = 255;  // of ranks and parity together
inline constexpr std::uint32_t most_checkpoint_parity = 16;

// Below the folder that --checkpoint-dir names.
std::string checkpoint_name(std::uint64_t step);  // "step-00001200"
struct FoundCheckpoint {
  std::string path;
  std::uint64_t step = 0;
  std::uint64_t sequence =
      0;  // in the order of saving, which a run that went back to an earlier step breaks with `step`
};
// The complete ones, by sequence. Reads the beginning of each manifest.
std::vector<FoundCheckpoint> find_checkpoints(const std::string& directory);
// The folders of others, whose manifest is gone or damaged: no kill leaves one. By name.
std::vector<std::string> damaged_checkpoints(const std::string& directory);
// UsageError where another job saves there. Makes the folder.
void require_free_checkpoints(const std::string& directory);

// A checkpoint's run, before anything is loaded.
struct CheckpointFacts {
  std::string path, written_by, dtype;
  std::uint64_t step = 0, steps_applied = 0;
  std::uint32_t world_size = 0, parity = 0;
  int stage = 0;
  StateFormat states;
  TrainingState state;
  std::string pin;                       // of a pinned one: its version in the swap stores
  std::vector<std::uint64_t> pinned_in;  // their ids, by rank
};
// Throws UsageError where `path` is no checkpoint, CorruptData where its manifest is damaged.
CheckpointFacts read_checkpoint_facts(const std::string& path);

struct CheckpointOptions {
  std::string directory;        // is made when it does not exist
  std::uint64_t keep_last = 0;  // 0: all
  // So many of the files of all ranks and of parity together may be lost. 0: none. At most
  // most_checkpoint_parity, and with the ranks no more than most_parity_files.
  std::uint32_t parity = 0;
  bool leads_host = true;  // one rank of each host; it makes folders that other hosts do not share
  std::string written_by;  // "headrace 0.1.0"
  std::string model;       // config.json of the model, for exports; empty: none can be made
  bool pin = false;        // in the engine's swap store, which has room for keep_last + 1 of them
};

class CheckpointPins;

class Checkpointer {
 public:
  // Claims the folder; UsageError where another job saves there. With begin(), communicator and device are
  // the saver's own: nobody else calls them.
  Checkpointer(Engine& engine, IoEngine& io, Communicator& communicator, Device& device,
               const EngineOptions& engine_options, const CheckpointOptions& options);
  ~Checkpointer();  // waits for what was begun

  struct Saved {
    std::string path;
    std::uint64_t step = 0;
    Bytes bytes = 0;  // of all files
    double seconds = 0;
    double held_up_seconds = 0;  // updates that waited for it
    std::string problem;         // of what comes after it is whole and visible; empty: none
  };
  Saved save(const TrainingState& state);

  // The same in a thread of its own, of the states of now, while the engine goes on: it needs the engine's
  // snapshot_buffers. result() of the save before has been taken.
  void begin(const TrainingState& state);
  bool saving() const { return saving_.valid(); }
  // Of what was begun, once: none while it is being written, unless `wait`. Throws what it failed with. Ranks
  // may learn it at different steps.
  std::optional<Saved> result(bool wait);
  // Whether it has one, or there is none to come. Throws what the device has failed with.
  bool ended(bool wait);

 private:
  class Save;
  Engine& engine_;
  IoEngine& io_;
  Communicator& communicator_;
  Device& device_;
  EngineOptions engine_options_;
  CheckpointOptions options_;
  HostBuffer memory_;
  Fd lock_;
  std::unique_ptr<CheckpointPins> pins_;  // where the engine's swap store can keep some
  std::future<Saved> saving_;
};

struct LoadOptions {
  bool weights_only = false;                                // moments and step numbers begin anew
  std::function<void(const CheckpointFacts&)> accept = {};  // before anything is changed; throws to refuse
  std::function<void()> before_replacing = {};              // Engine::initialise
  bool check_first = false;  // all that will be read is read and checked before that too
  // Told once of each damaged file that parity makes up for: "rank-00001-of-00002.safetensors is missing".
  std::function<void(const std::string& problem)> on_damage = {};
  TrainingState start = {};  // of weights_only
};
// Fills an engine whose units are added. Strict: parameters that differ in name or shape are all listed
// (UsageError), and nothing is changed. Missing and damaged files are rebuilt in memory where parity can,
// else CorruptData naming each. Reads what this rank needs.
TrainingState load_checkpoint(const std::string& path, Engine& engine, IoEngine& io,
                              const LoadOptions& options);
// One warning, of rank 0, of what the ranks were told of damage. A collective.
void warn_of_damage(const std::string& path, const std::vector<std::string>& problems,
                    Communicator& communicator, Device& device);

// What a load into states of this format would change, a sentence each: "exp_avg is rounded from fp32 to
// bf16".
std::vector<std::string> conversions(const StateFormat& stored, const StateFormat& wanted);

}  // namespace headrace

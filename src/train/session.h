// One training run: its plan, backends, engine, model and data, built in the order that refuses early and
// leaves nothing behind.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "headrace/checkpoint.h"
#include "headrace/data.h"
#include "headrace/model_folder.h"
#include "headrace/train.h"
#include "src/train/backends.h"
#include "src/train/stop_signals.h"

namespace headrace {

struct Corpus {
  Tokens tokens;
  SampleWindows windows;
  Corpus(const std::string& path, const ResolvedOptions& options)
      : tokens(Tokens::open(path, options.model.vocabulary, options.token_bits)),
        windows(tokens, static_cast<std::uint64_t>(options.model_options.sequence), options.seed) {}
};

// Everything that can be checked without creating anything: data, plan, limits, swap path.
struct RunInputs {
  Corpus training;
  std::optional<Corpus> held_out;
  std::optional<ModelWeights> weights;  // of a new run from a model folder
  RunPlan plan;
  std::string checkpoint;  // to begin with; empty: none
};
RunInputs check_inputs(const ResolvedOptions& options);

struct Session {
  const ResolvedOptions& options;
  RunInputs inputs;
  Backends backends;
  std::unique_ptr<Engine> engine;
  std::unique_ptr<Ops> ops;
  std::unique_ptr<Model> model;
  std::unique_ptr<Checkpointer> checkpointer;  // null where nothing is saved
  TrainingState state;
  std::string run;  // run_identity

  Session(const ResolvedOptions& options_in, RunInputs inputs_in)
      : options(options_in), inputs(std::move(inputs_in)) {}
  // Device, communicator and I/O engine; the ranks agree on what they run. Collective.
  void open_backends(StopSignals& signals);
  // Engine, model, states: initialised, or continued from the swap store or a checkpoint. Can take minutes.
  // Collective. StoppedBeforeStart, on all ranks, when a stop is asked for before an earlier run's store is
  // replaced.
  void build(StopSignals& signals);

  bool goes_on() const {  // with a run that was begun before
    return options.resume_swap || (!inputs.checkpoint.empty() && options.checkpoint.weights.empty());
  }
  // The checkpoint, or empty where it is the swap store alone; none of a new run.
  std::optional<std::string> goes_on_from() const {
    if (!goes_on()) return std::nullopt;
    return options.checkpoint.go_back_to.empty() ? inputs.checkpoint : options.checkpoint.go_back_to;
  }
  int rank() const { return options.launch.rank; }
  std::uint64_t sequence() const { return static_cast<std::uint64_t>(options.model_options.sequence); }

 private:
  void begin(StopSignals& signals);
  TrainingState continue_in_store();  // from its newest step, or a version that it keeps
  std::unique_ptr<Checkpointer> make_checkpointer();
  void load_states(const std::function<void()>& before_replacing);
  void check_same_run(const TrainingState& stored, std::string_view resume, const std::string& place) const;
};

}  // namespace headrace

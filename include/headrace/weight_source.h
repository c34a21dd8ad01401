// The weights of a trained model wherever they are: a checkpoint, the newest of a run's checkpoints, or a
// model folder. They are read in pieces; what is held is headers and one piece.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "headrace/io_engine.h"
#include "headrace/model.h"

namespace headrace {

struct WeightFacts {
  std::string path;     // the checkpoint's or the model's folder
  std::string summary;  // "step 1200 of a checkpoint by headrace 0.1.0", "1 file, F32, 12.0 MiB"
  ModelConfig config;
  DType dtype = DType::f32;  // of the run's parameters, or of the files
  std::string run;           // of a checkpoint: TrainingState::run; else empty
};

class WeightSource {
 public:
  virtual ~WeightSource() = default;
  virtual const WeightFacts& facts() const = 0;
  // Elements [first, first + out.size()) of a parameter of that configuration's units. CorruptData where they
  // are damaged.
  virtual void read(const ParameterSpec& parameter, std::uint64_t first, std::span<float> out) = 0;
};
// UsageError where there is none, or where its weights are not those of its configuration (all differences).
// `io` outlives the result.
std::unique_ptr<WeightSource> open_weight_source(const std::string& path, IoEngine& io);

}  // namespace headrace

// Runs points: a pipeline for each, over stores that are kept from one trial to the next.
#pragma once

#include <deque>
#include <functional>

#include "src/tune/closed_form.h"
#include "src/tune/swap_pipeline.h"
#include "src/tune/tune_files.h"

namespace headrace::tune {

class Trials {
 public:
  // `files` outlives this. `sample_seconds`: about how long the steps of one trial take together.
  Trials(const TuneOptions& options, std::vector<SwapPlacement> placements, const TuneFiles& files,
         std::uint64_t parameters, double sample_seconds)
      : options_(options),
        placements_(std::move(placements)),
        files_(files),
        parameters_(parameters),
        sample_seconds_(sample_seconds) {}

  // Steps at a point, at least two unless `over` says that the time is. Failures of the drive and of limits
  // are in the result; the point's store is kept after the latter.
  TuneTrial run(const SwapPoint& point, const std::function<bool()>& over);
  // The pipeline at a point, every extent of it written before.
  std::unique_ptr<SwapPipeline> open(const SwapPoint& point);
  // A step with one block for each path, the median of a few: what a step costs however small it is.
  TimedStep time_small_step(const SwapPoint& point);
  // The path of `name` in each folder of the point's placement.
  std::vector<std::string> paths_of(const SwapPoint& point, const std::string& name) const;

 private:
  SwapPipelineOptions pipeline_options(const SwapPoint& point, const std::string& store) const;
  void drop(const std::string& store);
  TuneTrial measure(const SwapPoint& point, const std::function<bool()>& over);

  const TuneOptions& options_;
  std::vector<SwapPlacement> placements_;
  const TuneFiles& files_;
  std::uint64_t parameters_;
  double sample_seconds_;
  std::deque<std::string> kept_;  // the stores on the drive, last used first
};

}  // namespace headrace::tune

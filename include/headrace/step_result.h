// What an optimizer step gives back, what goes with its commit, and what has been counted so far.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "headrace/communicator.h"
#include "headrace/io_engine.h"
#include "headrace/loss_scale.h"

namespace headrace {

struct StepResult {
  std::uint64_t step = 0;      // optimizer steps applied so far
  double gradient_norm = 0.0;  // of the averaged gradient, before clipping; inf when not finite
  bool clipped = false, skipped = false;
};

// What else must continue with the parameters: written with every commit, read back by resume().
struct TrainingState {
  std::uint64_t data_position = 0;  // samples consumed by all ranks
  std::uint64_t rng_state = 0;
  std::uint64_t iteration = 0;  // steps begun, skipped ones included: drives the schedule
  LossScale loss_scale{};       // of fp16 models; others keep 1
  std::string run{};            // what decides its steps, as its owner says; opaque here
  std::uint64_t run_id = 0;  // drawn when it began or went on from a checkpoint; 0: of before there was one
};

// As JSON text, beside the states of a commit or a checkpoint. Decoding throws CorruptData that names
// `place`.
std::string encode_training_state(const TrainingState& state, std::uint64_t steps_applied);
TrainingState decode_training_state(const std::string& text, std::uint64_t& steps_applied,
                                    std::string_view place = "the swap store's last commit");

// Seconds that compute, the reduction or the owner waited for each cause; bytes moved. Cumulative.
struct EngineCounters {
  double upload_stall_seconds = 0, download_stall_seconds = 0, nvme_stall_seconds = 0,
         communicate_stall_seconds = 0, optimizer_seconds = 0;
  IoCounters io;
  TrafficCounters traffic;
};

}  // namespace headrace

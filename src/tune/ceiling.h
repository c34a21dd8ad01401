// How far a point is from what the drive and the processor allow.
#pragma once

#include <functional>

#include "src/tune/raw_rates.h"
#include "src/tune/swap_pipeline.h"

namespace headrace::tune {

struct CeilingRounds {
  double compute_seconds = 0;  // the update of one block in memory
  double plain_seconds = 0;    // of plain reads, and of plain writes, in each round
  double written_a_byte = 1;   // bytes written for each byte of states: parity comes on top
  std::function<bool()> over;  // asked before each round but the first
  std::function<bool()> stop;  // asked before each
};

// What of the time that is left goes to plain_seconds, so that three rounds fit where that is possible.
double plain_seconds(double left, double step_seconds);
inline double round_seconds(double step_seconds, double plain_seconds) {
  return 2 * (step_seconds + plain_seconds);
}

// Rounds of a real step, a null step, plain reads and plain writes: one at least, unless it is stopped.
// Without a file, of the steps alone; the rates of plain transfers are 0 then.
TuneCeiling measure_ceiling(SwapPipeline& pipeline, RawFile* file, const SwapPoint& point,
                            const CeilingRounds& rounds);

}  // namespace headrace::tune

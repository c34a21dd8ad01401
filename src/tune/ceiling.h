// How far a point is from what the drive and the processor allow.
#pragma once

#include <functional>

#include "src/tune/raw_rates.h"
#include "src/tune/swap_pipeline.h"

namespace headrace::tune {

// Rounds of a real step, a null step, plain reads and plain writes, until `over`; three at least, unless
// `stop` asks for less. `compute_seconds`: the update of one block in memory.
TuneCeiling measure_ceiling(SwapPipeline& pipeline, RawFile& file, std::uint32_t buffers, Bytes block_bytes,
                            double compute_seconds, const std::function<bool()>& over,
                            const std::function<bool()>& stop);

}  // namespace headrace::tune

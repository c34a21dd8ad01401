// Looks at a pinned checkpoint: the swap stores that keep its states.
#pragma once

#include <string>

#include "headrace/checkpoint_report.h"
#include "src/checkpoint/manifest.h"

namespace headrace {

// Of a rank the first damage; `headrace inspect --verify` of the swap paths lists all.
CheckpointReport inspect_pinned(const std::string& path, const Manifest& manifest,
                                const InspectOptions& options, IoEngine& engine,
                                const InspectControl& control);

}  // namespace headrace

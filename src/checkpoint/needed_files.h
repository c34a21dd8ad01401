// Which files of a checkpoint a rank reads when it loads: those of its own pieces. Where each host keeps what
// its ranks wrote, they may be all that the host has.
#pragma once

#include <map>
#include <vector>

#include "headrace/engine.h"
#include "src/checkpoint/manifest.h"

namespace headrace {

// One entry a file. `numbers`: of the engine's parameters in the manifest.
std::vector<bool> needed_files(const Manifest& manifest, const Engine& engine,
                               const std::map<const ParameterSpec*, std::uint32_t>& numbers);

}  // namespace headrace

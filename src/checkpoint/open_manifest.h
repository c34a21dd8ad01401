// A checkpoint's manifest from its folder.
#pragma once

#include <string>

#include "headrace/checkpoint.h"
#include "src/checkpoint/manifest.h"

namespace headrace {

// UsageError where `path` is no checkpoint, CorruptData where the manifest is damaged.
Manifest open_manifest(const std::string& path);
CheckpointFacts facts_of(const Manifest& manifest, const std::string& path);

}  // namespace headrace

// A checkpoint's manifest from its folder.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "headrace/checkpoint.h"
#include "src/checkpoint/manifest.h"

namespace headrace {

// One of the two files that hold it.
struct ManifestText {
  std::optional<Manifest> manifest;  // where it is good
  std::string text;
  std::string problem, error;  // "is missing", "is damaged"; the whole message of damage
};
ManifestText read_manifest(const std::string& path, std::string_view name);

// From its copy where it is damaged or missing. UsageError where `path` is no checkpoint, CorruptData where
// there is no good one.
Manifest open_manifest(const std::string& path);
CheckpointFacts facts_of(const Manifest& manifest, const std::string& path);

}  // namespace headrace

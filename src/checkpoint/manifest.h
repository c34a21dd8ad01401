// The manifest of a checkpoint: what it holds, and where every slice of every parameter lies. Written last,
// so that a folder with a manifest is whole.
//
// JSON text with a CRC32C of itself. Files name tensors, so any reader of safetensors opens them; the
// manifest says the same with a checksum for each, and is what loading goes by.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "headrace/bytes.h"
#include "headrace/optimizer_state.h"

namespace headrace {

inline constexpr const char* manifest_name = "manifest.json";
inline constexpr std::uint32_t manifest_version = 1;

struct ManifestParameter {
  std::string name;
  std::vector<std::int64_t> shape;
  std::uint64_t numel() const;
};

// Elements [first, first + numel) of a parameter in one of the arrays: bytes [begin, begin + bytes_of(numel))
// of a file. Padding is not stored.
struct ManifestSlice {
  std::uint32_t parameter = 0, array = 0, file = 0, crc32c = 0;
  std::uint64_t first = 0, numel = 0, begin = 0;
};

// One a rank that wrote, by rank.
struct ManifestFile {
  std::string name;
  Bytes bytes = 0, header_bytes = 0;  // its size; the safetensors header with its length
  std::uint32_t header_crc32c = 0;
};

struct Manifest {
  std::string written_by;      // program and version
  std::uint64_t sequence = 1;  // counts the saves of a folder
  std::uint64_t step = 0;
  std::uint32_t world_size = 0;
  int stage = 0;
  std::string dtype;     // of the model's parameters
  StateFormat states;    // master is never `none`
  std::string training;  // opaque here: encode_training_state
  std::string model;     // config.json of the model, or "null"
  std::vector<ManifestParameter> parameters;
  std::vector<ManifestFile> files;
  std::vector<ManifestSlice> slices;
};

std::string to_text(const Manifest& manifest);
// Throws CorruptData naming `path` where the text is not what to_text wrote, or places something outside its
// parameter or file.
Manifest parse_manifest(const std::string& text, const std::string& path);

}  // namespace headrace

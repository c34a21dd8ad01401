// The manifest of a checkpoint: what it holds, and where every slice of every parameter lies. Written last,
// so that a folder with a manifest is whole. That of a pinned checkpoint names no files, but the swap stores
// of its ranks and the version that each keeps of it; their layouts say where slices are.
//
// JSON text with a CRC32C of itself. Files name tensors, so any reader of safetensors opens them; the
// manifest says the same with a checksum for each, and is what loading goes by.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "headrace/bytes.h"
#include "headrace/optimizer_state.h"

namespace headrace {

inline constexpr const char* manifest_name = "manifest.json";
inline constexpr const char* manifest_copy_name = "manifest-copy.json";  // beside it where there is parity
inline constexpr std::uint32_t manifest_version = 1, pinned_manifest_version = 2;

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

// Reed-Solomon over the files of all ranks, byte by byte, the shorter ones taken for followed by zeros. A
// stripe is the same range of each file: of its pieces as many may be damaged as there is parity.
struct ManifestParity {
  Bytes stripe_bytes = 0;
  std::vector<ManifestFile> files;                 // each as long as the longest of the ranks'
  std::vector<std::vector<std::uint32_t>> crc32c;  // of each stripe, by file: the ranks', then parity's
};

// The swap store of one rank.
struct ManifestStore {
  std::uint64_t id = 0;
  std::vector<std::string> directories;
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
  std::optional<ManifestParity> parity;
  std::string pin;                    // of a pinned checkpoint: what its version is called in the stores
  std::vector<ManifestStore> stores;  // by rank; of others none
  std::string problem;                // not stored: why this was read from the copy; empty: it was not

  bool is_pinned() const { return !stores.empty(); }
  // With those of parity behind the ranks'.
  std::uint32_t file_count() const;
  const ManifestFile& file(std::uint32_t index) const;
  std::uint32_t parity_rows() const;
};

std::string to_text(const Manifest& manifest);
// Throws CorruptData naming `path` where the text is not what to_text wrote, or places something outside its
// parameter or file.
Manifest parse_manifest(const std::string& text, const std::string& path);

}  // namespace headrace

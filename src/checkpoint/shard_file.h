// The file that one rank writes to a checkpoint: a safetensors file, of a tensor for every array of every
// piece, in the order in which the engine brings the pieces.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "headrace/engine_states.h"
#include "src/checkpoint/manifest.h"
#include "src/checkpoint/stored_arrays.h"

namespace headrace {

struct ShardFile {
  std::string header;                 // with its length in front
  std::vector<ManifestSlice> slices;  // piece by piece, array by array; crc32c is still to come
  Bytes bytes = 0;                    // of the whole file
};

// `index_of` gives a parameter's number in the manifest; `file` is this file's.
ShardFile plan_shard_file(std::span<const StatePiece> pieces, std::span<const StoredArray> arrays,
                          const std::unordered_map<std::string_view, std::uint32_t>& index_of,
                          std::uint32_t file);
std::string shard_file_name(int rank, int world_size);  // "rank-00000-of-00004.safetensors"

}  // namespace headrace

// store.json: what a store holds. Also says in words how two layouts differ.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "headrace/swap_store.h"

namespace headrace::swap {

struct Description {
  std::uint64_t store_id = 0;
  Durability durability = Durability::step;
  Bytes extent_alignment = 0;
  bool owns_directory = false;  // create() made the folder
  std::string layout;
  std::vector<SwapBlock> blocks;
};

void write_description(const std::string& directory, const Description& description);
// UsageError when the folder holds no store or one of another format version, CorruptData when it cannot be
// parsed.
Description read_description(const std::string& directory);

std::string layout_identity(const std::string& layout);  // short: CRC32C and length
// "world_size is 4 in the store, 2 here; ..." for JSON objects, else the identities alone.
std::string layout_difference(const std::string& stored, const std::string& wanted);

}  // namespace headrace::swap

// store.json: what a store holds. Also says in words how two layouts differ.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "headrace/swap_store.h"
#include "swap/format.h"
#include "swap/stripe_map.h"

namespace headrace::swap {

struct Description {
  std::uint64_t store_id = 0;
  StripeShape shape;
  std::string layout;
  std::vector<SwapBlock> blocks;
  std::vector<std::uint32_t> first_paths;  // of each block
  std::vector<std::string> directories;    // of all paths, as create() or repair() was given them, absolute
  std::uint64_t directories_revision = 0;  // of several lists that one store has, the largest counts
  std::uint32_t path = 0;                  // which of them this is
  bool owns_directory = false;             // create() made the folder

  StripeMap map() const { return {blocks, shape, first_paths}; }
  JournalIdentity journal_identity(std::uint32_t of_path) const {
    return {store_id, static_cast<std::uint32_t>(blocks.size()) * shape.pieces(), of_path};
  }
};

void write_description(const std::string& directory, const Description& description);
// UsageError when the folder holds no store or one of another format version, CorruptData when it cannot be
// parsed.
Description read_description(const std::string& directory);
bool holds_description(const std::string& directory);
bool made_by_stale_store(const std::string& directory);  // the folder itself, by create()

std::string layout_identity(const std::string& layout);  // short: CRC32C and length
// "world_size is 4 in the store, 2 here; ..." for JSON objects, else the identities alone.
std::string layout_difference(const std::string& stored, const std::string& wanted);

}  // namespace headrace::swap

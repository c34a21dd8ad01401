// Which arrays a checkpoint keeps of every parameter, and the bytes of a piece in each: what `StateFormat`
// says, flattened. int8 moments are two arrays, codes and scales.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "headrace/bytes.h"
#include "headrace/optimizer_state.h"

namespace headrace {

struct StoredArray {
  std::string name;   // "master", or as PyTorch calls the moment; of scales "exp_avg.scales"
  std::string dtype;  // as safetensors calls it: "F32", "BF16", "U8"
  int moment = -1;    // index of moment_of; -1: the master
  bool scales = false;
  std::uint64_t values_of(std::uint64_t numel) const;  // how many the array has for so many elements
  Bytes bytes_of(std::uint64_t numel) const;
};
std::vector<StoredArray> stored_arrays(const StateFormat& format);

// Elements [at, at + numel) of the array; `at` lies on a quantisation block.
std::span<std::byte> stored_bytes(const StoredArray& array, const StateArrays& states, std::uint64_t at,
                                  std::uint64_t numel);

}  // namespace headrace

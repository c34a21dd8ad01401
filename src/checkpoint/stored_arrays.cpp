#include "src/checkpoint/stored_arrays.h"

namespace headrace {
namespace {

Bytes value_bytes(const StoredArray& array) {
  return array.dtype == "F32" ? 4 : array.dtype == "BF16" ? 2 : 1;
}

std::string_view dtype_of(MomentDType dtype) {
  return dtype == MomentDType::f32 ? "F32" : dtype == MomentDType::bf16 ? "BF16" : "U8";
}

}  // namespace

std::uint64_t StoredArray::values_of(std::uint64_t numel) const {
  return scales ? divide_up(numel, quantised_block_numel) : numel;
}

Bytes StoredArray::bytes_of(std::uint64_t numel) const {
  return values_of(numel) * value_bytes(*this);
}

std::vector<StoredArray> stored_arrays(const StateFormat& format) {
  std::vector<StoredArray> arrays;
  if (format.master != MasterDType::none)
    arrays.push_back({.name = "master", .dtype = format.master == MasterDType::f32 ? "F32" : "BF16"});
  for (int m = 0; m < moment_count(format); ++m) {
    const std::string name(moment_of(format, m).name);
    arrays.push_back({.name = name, .dtype = std::string(dtype_of(format.moments)), .moment = m});
    if (format.moments == MomentDType::int8)
      arrays.push_back({.name = name + ".scales", .dtype = "F32", .moment = m, .scales = true});
  }
  return arrays;
}

std::span<std::byte> stored_bytes(const StoredArray& array, const StateArrays& states, std::uint64_t at,
                                  std::uint64_t numel) {
  std::byte* start = states.master;
  if (array.moment >= 0) {
    const MomentArray& moment = states.moments[static_cast<std::size_t>(array.moment)];
    start = array.scales ? reinterpret_cast<std::byte*>(moment.scales) : moment.values;
  }
  const std::uint64_t first = array.scales ? at / quantised_block_numel : at;
  return {start + first * value_bytes(array), array.bytes_of(numel)};
}

}  // namespace headrace

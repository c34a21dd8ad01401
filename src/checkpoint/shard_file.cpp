#include "src/checkpoint/shard_file.h"

#include <fmt/format.h>

#include <cstring>
#include <nlohmann/json.hpp>

namespace headrace {
namespace {

constexpr Bytes data_alignment =
    4096;  // where data begins, so that whole buffers are written to whole blocks

// Names are unique: no two pieces of a parameter begin alike.
std::string tensor_name(const StatePiece& piece, const StoredArray& array) {
  return fmt::format("{}:{}:{}", piece.parameter->name, array.name, piece.first);
}

void append_entry(std::string& header, const std::string& name, const StoredArray& array, std::uint64_t numel,
                  Bytes begin, Bytes end) {
  header += fmt::format(R"({}{}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                        header.size() > 1 ? "," : "", nlohmann::json(name).dump(), array.dtype,
                        array.values_of(numel), begin, end);
}

// The length in front, spaces behind, as the format allows.
std::string framed(std::string json) {
  json.resize(round_up(json.size() + sizeof(std::uint64_t), data_alignment) - sizeof(std::uint64_t), ' ');
  const std::uint64_t length = json.size();
  std::string framed(sizeof length, '\0');
  std::memcpy(framed.data(), &length, sizeof length);
  return framed + json;
}

}  // namespace

ShardFile plan_shard_file(std::span<const StatePiece> pieces, std::span<const StoredArray> arrays,
                          const std::unordered_map<std::string_view, std::uint32_t>& index_of,
                          std::uint32_t file) {
  ShardFile result;
  std::string header = "{";
  Bytes end = 0;
  for (const StatePiece& piece : pieces)
    for (std::uint32_t a = 0; a < arrays.size(); ++a) {
      const Bytes begin = end;
      end += arrays[a].bytes_of(piece.numel);
      append_entry(header, tensor_name(piece, arrays[a]), arrays[a], piece.numel, begin, end);
      result.slices.push_back({.parameter = index_of.at(piece.parameter->name),
                               .array = a,
                               .file = file,
                               .crc32c = 0,
                               .first = piece.first,
                               .numel = piece.numel,
                               .begin = begin});
    }
  result.header = framed(header + "}");
  result.bytes = result.header.size() + end;
  for (ManifestSlice& slice : result.slices) slice.begin += result.header.size();
  return result;
}

std::string shard_file_name(int rank, int world_size) {
  return fmt::format("rank-{:05}-of-{:05}.safetensors", rank, world_size);
}

}  // namespace headrace

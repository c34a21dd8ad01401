// The safetensors format: 8 bytes that hold the length of a JSON header (little-endian), the header, and the
// data of the tensors end to end. https://huggingface.co/docs/safetensors
//
// A file is taken for hostile until it is proven sound: parsing refuses every length, shape and range that
// the format does not allow, a name that stands twice, and bytes that belong to no tensor or to two. A
// refusal is CorruptData that names the file, the tensor and what to do. What was accepted needs no further
// check: every tensor's bytes lie in the file, and are as many as its shape says.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/bytes.h"
#include "headrace/dtype.h"
#include "headrace/owned.h"

namespace headrace {

// An element type by the format's name for it.
struct SafetensorsDType {
  std::string_view name;
  std::uint64_t bits = 0;
  bool operator==(const SafetensorsDType&) const = default;
};
std::optional<SafetensorsDType> find_safetensors_dtype(std::string_view name);
SafetensorsDType safetensors_dtype(DType dtype);
std::optional<DType> native_dtype(SafetensorsDType dtype);  // none: the engine does not compute with it

struct StoredTensor {
  std::string name;
  SafetensorsDType dtype;
  std::vector<std::uint64_t> shape;  // empty: a scalar
  Bytes first = 0, bytes = 0;        // of the data, which begin behind the header
  std::uint64_t numel() const;       // a dimension of 0 is allowed
};

using SafetensorsMetadata = std::map<std::string, std::string>;

struct SafetensorsHeader {
  std::vector<StoredTensor> tensors;  // in order of their data
  SafetensorsMetadata metadata;
};

// The length of the header of a file of `file_bytes` that begins so.
Bytes safetensors_header_bytes(const std::array<std::byte, 8>& start, Bytes file_bytes,
                               const std::string& path);
// `path` is for messages alone.
SafetensorsHeader parse_safetensors_header(std::string_view json, Bytes data_bytes, const std::string& path);

// An open file. Const calls may run at the same time. IoError where the system refuses.
class SafetensorsFile {
 public:
  static SafetensorsFile open(const std::string& path);
  const std::string& path() const { return path_; }
  const std::vector<StoredTensor>& tensors() const { return header_.tensors; }
  const SafetensorsMetadata& metadata() const { return header_.metadata; }
  Bytes file_bytes() const { return file_bytes_; }
  // Fills `out` with bytes [offset, offset + out.size()) of one of tensors().
  void read(const StoredTensor& tensor, Bytes offset, std::span<std::byte> out) const;

 private:
  void read_at(Bytes offset, std::span<std::byte> out) const;

  std::string path_;
  Fd fd_;
  Bytes file_bytes_ = 0, data_first_ = 0;
  SafetensorsHeader header_;
};

}  // namespace headrace

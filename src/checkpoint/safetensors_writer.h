// Writes safetensors files (safetensors.h) whose tensors' sizes are known and whose data arrive in order, in
// pieces of any size. Memory: the header alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/checkpoint/safetensors.h"
#include "src/checkpoint/whole_file.h"

namespace headrace {

struct TensorDescription {
  std::string name;
  SafetensorsDType dtype;
  std::vector<std::uint64_t> shape;
  Bytes bytes() const;
};

// What stands before the data, length included: a multiple of 8, so that the data are aligned.
std::string safetensors_header(const std::vector<TensorDescription>& tensors,
                               const SafetensorsMetadata& metadata);

// One file, complete or not there (whole_file.h): destroyed before finish(), it leaves nothing.
class SafetensorsWriter {
 public:
  // DoesNotFit where the disk of `folder` has less space than the file takes.
  SafetensorsWriter(const std::string& folder, std::string_view name,
                    const std::vector<TensorDescription>& tensors, const SafetensorsMetadata& metadata);
  void write(std::span<const std::byte> piece);  // the next bytes of the data
  void finish();                                 // all data were written

 private:
  Bytes file_bytes_;
  WholeFile file_;
};

// Throws DoesNotFit where `folder` has less than `bytes` free for `what`.
void require_disk_space(const std::string& folder, Bytes bytes, std::string_view what);

}  // namespace headrace

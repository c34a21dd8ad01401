// One input of a fuzzer is one safetensors file: it is refused as CorruptData, or all that it says of its
// tensors is true and can be read.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "headrace/errors.h"
#include "src/checkpoint/safetensors.h"

namespace {

using namespace headrace;

void require(bool holds) {
  if (!holds) std::abort();
}

void check_tensors(const SafetensorsFile& file) {
  Bytes next = 0;
  for (const StoredTensor& tensor : file.tensors()) {
    require(tensor.first == next && tensor.first + tensor.bytes <= file.file_bytes());
    require(tensor.numel() * tensor.dtype.bits == tensor.bytes * 8);
    next += tensor.bytes;
    std::vector<std::byte> all(tensor.bytes);
    file.read(tensor, 0, all);
  }
  require(next <= file.file_bytes());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const int memory = ::memfd_create("safetensors", MFD_CLOEXEC);
  static const std::string path = "/proc/self/fd/" + std::to_string(memory);
  require(memory >= 0 && ::ftruncate(memory, 0) == 0);
  require(::pwrite(memory, data, size, 0) == static_cast<ssize_t>(size));
  try {
    check_tensors(SafetensorsFile::open(path));
    return 0;
  } catch (const CorruptData&) {
    return -1;  // nothing to be learnt from keeping it
  }
}

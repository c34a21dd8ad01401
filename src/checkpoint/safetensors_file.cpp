#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "headrace/errors.h"
#include "src/checkpoint/safetensors.h"

namespace headrace {

SafetensorsFile SafetensorsFile::open(const std::string& path) {
  SafetensorsFile file;
  file.path_ = path;
  // A pipe in the place of a file would hold open(2) up until somebody writes into it.
  file.fd_ = Fd{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (!file.fd_) throw IoError("open", path, 0, 0, errno);
  struct stat status {};
  if (::fstat(file.fd_.get(), &status) != 0) throw IoError("fstat", path, 0, 0, errno);
  if (!S_ISREG(status.st_mode))
    throw CorruptData(fmt::format("{} is not a regular file. Give a file.", path));
  file.file_bytes_ = static_cast<Bytes>(status.st_size);

  std::array<std::byte, 8> start;
  if (file.file_bytes_ < start.size())
    throw CorruptData(
        fmt::format("{} is not a sound safetensors file: it has {} bytes, and the shortest has more. "
                    "Fetch or write it again.",
                    path, file.file_bytes_));
  file.read_at(0, start);
  std::string json(safetensors_header_bytes(start, file.file_bytes_, path), '\0');
  file.read_at(start.size(), std::as_writable_bytes(std::span(json)));
  file.data_first_ = start.size() + json.size();
  file.header_ = parse_safetensors_header(json, file.file_bytes_ - file.data_first_, path);
  return file;
}

void SafetensorsFile::read(const StoredTensor& tensor, Bytes offset, std::span<std::byte> out) const {
  HEADRACE_CHECK(offset <= tensor.bytes && out.size() <= tensor.bytes - offset,
                 "{} bytes at {} of tensor {}, which has {}", out.size(), offset, tensor.name, tensor.bytes);
  read_at(data_first_ + tensor.first + offset, out);
}

void SafetensorsFile::read_at(Bytes offset, std::span<std::byte> out) const {
  while (!out.empty()) {
    const ssize_t got = ::pread(fd_.get(), out.data(), out.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw IoError("read", path_, offset, out.size(), errno);
    if (got == 0)
      throw CorruptData(
          fmt::format("{} became shorter while it was in use: nothing at offset {}. Fetch or write "
                      "it again.",
                      path_, offset));
    out = out.subspan(static_cast<std::size_t>(got));
    offset += static_cast<Bytes>(got);
  }
}

}  // namespace headrace

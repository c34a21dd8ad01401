#include "headrace/data.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "headrace/errors.h"
#include "headrace/owned.h"
#include "headrace/state_hash.h"

namespace headrace {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse(const std::string& path, std::string_view why) {
  throw UsageError(fmt::format("the data {} cannot be used: {}.", path, why));
}

Fd open_file(const std::string& path) {
  Fd fd{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  if (!fd) refuse(path, std::strerror(errno));
  return fd;
}

std::vector<std::string> files_below(const std::string& folder) {
  std::vector<std::string> files;
  std::error_code error;
  for (fs::recursive_directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    std::error_code unreadable;
    if (entry->is_regular_file(unreadable)) files.push_back(entry->path().string());
  }
  if (error) refuse(folder, fmt::format("a folder in it cannot be listed ({})", error.message()));
  std::sort(files.begin(), files.end());
  return files;
}

// Reads exactly out.size() bytes; a file that ends early has changed since it was listed.
void read_exactly(const std::string& path, std::uint64_t offset, std::span<std::uint8_t> out) {
  const Fd fd = open_file(path);
  while (!out.empty()) {
    const ssize_t got = ::pread(fd.get(), out.data(), out.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw IoError("read", path, offset, out.size(), errno);
    if (got == 0)
      throw Error(fmt::format("the data file {} became shorter while it was in use: nothing at offset {}.",
                              path, offset));
    out = out.subspan(static_cast<std::size_t>(got));
    offset += static_cast<std::uint64_t>(got);
  }
}

}  // namespace

ByteCorpus ByteCorpus::open(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) refuse(path, std::strerror(errno));
  ByteCorpus corpus;
  corpus.path_ = path;
  const bool folder = S_ISDIR(status.st_mode);
  if (!folder && !S_ISREG(status.st_mode)) refuse(path, "it is neither a file nor a folder");
  for (std::string& name : folder ? files_below(path) : std::vector<std::string>{path}) {
    struct stat file {};
    if (::stat(name.c_str(), &file) != 0) refuse(name, std::strerror(errno));
    if (::access(name.c_str(), R_OK) != 0) refuse(name, std::strerror(errno));
    if (file.st_size == 0) continue;
    const auto bytes = static_cast<Bytes>(file.st_size);
    corpus.files_.push_back({std::move(name), corpus.total_bytes_, bytes});
    corpus.total_bytes_ += bytes;
  }
  if (corpus.total_bytes_ == 0) refuse(path, folder ? "no file below it holds a byte" : "the file is empty");
  return corpus;
}

void ByteCorpus::read(std::uint64_t offset, std::span<std::uint8_t> out) const {
  HEADRACE_CHECK(offset + out.size() <= total_bytes_, "read of {} bytes at {} of {}", out.size(), offset,
                 total_bytes_);
  auto file = std::upper_bound(files_.begin(), files_.end(), offset,
                               [](std::uint64_t at, const File& f) { return at < f.first + f.bytes; });
  while (!out.empty()) {
    const std::uint64_t within = offset - file->first;
    const auto bytes = static_cast<std::size_t>(std::min<std::uint64_t>(out.size(), file->bytes - within));
    read_exactly(file->path, within, out.first(bytes));
    out = out.subspan(bytes);
    offset += bytes;
    ++file;
  }
}

std::string ByteCorpus::fingerprint() const {
  constexpr std::uint64_t pieces = 4096, piece_bytes = 4096;
  const std::uint64_t stride = std::max(piece_bytes, total_bytes_ / pieces);
  std::uint64_t hash = 0;
  for (std::uint64_t begin = 0; begin < total_bytes_; begin += stride) {
    std::vector<std::uint8_t> piece(std::min(piece_bytes, total_bytes_ - begin));
    read(begin, piece);
    hash = splitmix64(hash) ^ hash_bytes({reinterpret_cast<const char*>(piece.data()), piece.size()});
  }
  return fmt::format("{} bytes {:016x}", total_bytes_, hash);
}

}  // namespace headrace

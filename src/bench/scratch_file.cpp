#include "src/bench/scratch_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <vector>

#include "headrace/errors.h"

namespace headrace {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view name_start = "headrace-bench-nvme-", name_end = ".tmp";

bool is_ours(const std::string& name) {
  if (!name.starts_with(name_start) || !name.ends_with(name_end)) return false;
  const std::string middle =
      name.substr(name_start.size(), name.size() - name_start.size() - name_end.size());
  return !middle.empty() && middle.find_first_not_of("0123456789-") == std::string::npos;
}

std::string new_name() {
  static std::atomic<int> number{0};
  return fmt::format("{}{}-{}{}", name_start, ::getpid(), number++, name_end);
}

IoFile open_nameless(const std::string& folder) {
  const std::string path = (fs::path(folder) / new_name()).string();
  try {
    IoFile file = IoFile::open(path, IoFile::Mode::create);
    ::unlink(path.c_str());  // gone already: another start tidied up
    return file;
  } catch (const IoError& error) {
    ::unlink(path.c_str());
    if (error.code() == ENOSPC || error.code() == EDQUOT)
      throw DoesNotFit(fmt::format("--path {}: there is no space for a file: {}. Free some.", folder,
                                   std::strerror(error.code())));
    throw UsageError(
        fmt::format("--path {}: no file can be made there: {}. Give a folder that can be written.", folder,
                    std::strerror(error.code())));
  }
}

}  // namespace

void remove_leftover_files(const std::string& folder) {
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    std::error_code ignored;
    if (is_ours(entry->path().filename().string()) && entry->is_regular_file(ignored) &&
        !entry->is_symlink(ignored))
      fs::remove(entry->path(), ignored);
  }
}

ScratchFile::ScratchFile(const std::string& folder) : folder_(folder), file_(open_nameless(folder)) {}

bool ScratchFile::reserve(Bytes bytes) {
  constexpr bool may_write = false;
  try {
    file_.preallocate(bytes, may_write);
    return true;
  } catch (const IoError& error) {
    if (error.code() != ENOSPC && error.code() != EDQUOT && error.code() != EFBIG) throw;
  }
  shrink(0);
  return false;
}

void ScratchFile::shrink(Bytes bytes) {
  if (::ftruncate(file_.fd(), static_cast<off_t>(bytes)) != 0)
    throw IoError("truncation", file_.path(), bytes, 0, errno);
}

void ScratchFile::evict() {
  file_.sync_data();
  ::posix_fadvise(file_.fd(), 0, 0, POSIX_FADV_DONTNEED);  // advice: resident_share says what came of it
}

void ScratchFile::forget(std::uint64_t offset, Bytes bytes) {
  if (file_.direct()) return;
  ::posix_fadvise(file_.fd(), static_cast<off_t>(offset), static_cast<off_t>(bytes), POSIX_FADV_DONTNEED);
}

double ScratchFile::resident_share(Bytes bytes) const {
  if (bytes == 0) return 0;
  void* memory = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, file_.fd(), 0);
  if (memory == MAP_FAILED) return 0;  // not every file system maps files
  std::vector<unsigned char> pages(divide_up(bytes, static_cast<Bytes>(::sysconf(_SC_PAGESIZE))));
  const bool known = ::mincore(memory, bytes, pages.data()) == 0;
  ::munmap(memory, bytes);
  if (!known) return 0;
  const auto resident =
      std::count_if(pages.begin(), pages.end(), [](unsigned char page) { return page & 1; });
  return static_cast<double>(resident) / static_cast<double>(pages.size());
}

}  // namespace headrace

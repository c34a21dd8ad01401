// The one door to the operating system for everything but bulk data (that goes through the IoEngine): whole
// transfers, errors with path and offset, and the order of flushes that survives a crash. Every call that
// changes a file or a folder of a swap store or of a checkpoint is made here. Any thread; everything blocks.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/bytes.h"
#include "headrace/owned.h"

namespace headrace::files {

std::string join(const std::string& directory, std::string_view name);
std::string parent_of(const std::string& path);
std::string absolute(const std::string& path);  // links resolved as far as they exist

// open(2) with O_CLOEXEC; throws IoError.
Fd open_file(const std::string& path, int flags);
bool file_exists(const std::string& path);
bool folder_exists(const std::string& path);
std::vector<std::byte> read_file(const std::string& path);
// What the path names now: the open file (is_same), another one, or, with an errno value in `code`, nothing
// that can be looked at.
struct FileAt {
  bool is_same = false;
  int code = 0;
};
FileAt file_at(int fd, const std::string& path);

void write_at(int fd, const std::string& path, std::uint64_t offset, std::span<const std::byte> data);
void truncate_file(int fd, const std::string& path, std::uint64_t bytes);
// Space up to `bytes`; the size stays that of the contents. Nothing happens where there is no fallocate.
void reserve_file(int fd, const std::string& path, std::uint64_t bytes);
void sync_file(int fd, const std::string& path);  // fdatasync
void sync_folder(const std::string& directory);
void remove_file(const std::string& path);  // no error when there is none

int make_folder(const std::string& path);              // 0, or the errno value
void remove_folder(const std::string& path) noexcept;  // stays when something is in it

struct FileSystem {
  std::uint64_t device = 0;  // folders with the same share their space
  Bytes free_bytes = 0;
};
FileSystem file_system_of(const std::string& directory);
Bytes bytes_on_disk(const std::string& path);  // 0 when there is no such file

inline constexpr const char* replacement_suffix = ".new";
// Replacing directory/name durably, in two parts: a crash leaves the old file or the new one, whole. When
// prepare throws, the old one is untouched and the part-written one removed; when publish throws, either may
// be found later.
void prepare_replacement(const std::string& directory, std::string_view name,
                         std::span<const std::byte> contents);
void publish_replacement(const std::string& directory, std::string_view name);

}  // namespace headrace::files

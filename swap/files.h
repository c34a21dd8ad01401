// The file operations of the journal, the description and the lock: whole transfers, errors with path and
// offset, and the order of flushes that survives a crash. (Block data goes through the IoEngine instead.)
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/bytes.h"
#include "headrace/owned.h"

namespace headrace::swap {

std::string join(const std::string& directory, std::string_view name);

// open(2) with O_CLOEXEC; throws IoError.
Fd open_file(const std::string& path, int flags);
bool file_exists(const std::string& path);
std::vector<std::byte> read_file(const std::string& path);

void write_at(int fd, const std::string& path, std::uint64_t offset, std::span<const std::byte> data);
void truncate_file(int fd, const std::string& path, std::uint64_t bytes);
void sync_file(int fd, const std::string& path);  // fdatasync
void sync_folder(const std::string& directory);
void remove_file(const std::string& path);  // no error when there is none

// Replacing directory/name durably, in two parts: a crash leaves the old file or the new one, whole. When
// prepare throws, the old one is untouched and the part-written one removed; when publish throws, either may
// be found later.
void prepare_replacement(const std::string& directory, std::string_view name,
                         std::span<const std::byte> contents);
void publish_replacement(const std::string& directory, std::string_view name);

}  // namespace headrace::swap

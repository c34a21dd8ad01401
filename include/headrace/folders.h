// What is said of folders that a user gave, before anything is done in them. `name` is the flag ("--path"),
// `purpose` what follows "a folder" in the advice ("on the drive to measure").
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace headrace {

// Why no file can be made in `path`, and what to do; empty where nothing speaks against it. Makes nothing.
std::string folder_problem(std::string_view name, const std::string& path, std::string_view purpose);
// Throws UsageError with that.
void require_usable_folder(std::string_view name, const std::string& path, std::string_view purpose);
// Throws UsageError where two of the paths are one folder, however they are written.
void require_different_folders(std::string_view name, const std::vector<std::string>& paths);
// On tmpfs or ramfs: what is kept there takes memory. False where it cannot be found out.
bool lies_in_memory(const std::string& path);

}  // namespace headrace

#include "src/checkpoint/store_folders.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <optional>

#include "headrace/errors.h"
#include "headrace/swap_store.h"

namespace headrace {
namespace {

namespace fs = std::filesystem;

constexpr const char* description_name = "store.json";

// What cannot be looked into may hold a store: reading it then says why it cannot.
bool may_hold_a_store(const fs::path& folder) {
  std::error_code error;
  return fs::exists(folder / description_name, error) || (error && error != std::errc::not_a_directory);
}

std::optional<std::uint64_t> rank_of(const std::string& name) {
  constexpr std::string_view prefix = "rank-";
  if (name.size() <= prefix.size() || !name.starts_with(prefix) ||
      name.find_first_not_of("0123456789", prefix.size()) != std::string::npos)
    return std::nullopt;
  return std::strtoull(name.c_str() + prefix.size(), nullptr, 10);
}

using FoldersByRank =
    std::map<std::uint64_t, std::vector<std::string>>;  // rank-100000 comes after rank-99999

void add_ranks(const std::string& path, FoldersByRank& folders) {
  std::error_code error;
  fs::directory_iterator entry(path, error);
  if (error && error != std::errc::not_a_directory && error != std::errc::no_such_file_or_directory)
    throw UsageError(fmt::format(
        "{} cannot be read: {}. Inspect it as the user who runs the job, or have that user allow it (chmod).",
        path, error.message()));
  for (; !error && entry != fs::directory_iterator(); entry.increment(error))
    if (const auto rank = rank_of(entry->path().filename().string()); rank && may_hold_a_store(entry->path()))
      folders[*rank].push_back(entry->path().string());
}

// The others that one folder's store lies in; damage shows when the store is opened.
std::vector<std::string> with_its_other_folders(const std::string& folder) {
  try {
    std::vector<std::string> all = SwapStore::directories_of(folder);
    const auto is_given = [&](const std::string& other) {
      std::error_code error;
      return fs::equivalent(other, folder, error);
    };
    // Moved since: what the store calls its folders is no longer where they are.
    if (std::none_of(all.begin(), all.end(), is_given)) return {folder};
    std::replace_if(all.begin(), all.end(), is_given, folder);
    return all;
  } catch (const Error&) {
    return {folder};
  }
}

}  // namespace

std::vector<std::vector<std::string>> store_folders(const std::vector<std::string>& paths) {
  FoldersByRank by_rank;
  std::vector<std::string> own;  // given as the folders of one rank
  for (const std::string& path : paths) {
    std::error_code error;
    if (fs::exists(fs::path(path) / description_name, error))
      own.push_back(path);
    else
      add_ranks(path, by_rank);
  }
  std::vector<std::vector<std::string>> stores;
  if (!own.empty()) stores.push_back(std::move(own));
  for (auto& [rank, folders] : by_rank) stores.push_back(std::move(folders));
  if (stores.empty())
    throw UsageError(
        fmt::format("there is no swap store in {}: neither store.json nor a folder rank-00000 with one. "
                    "Give the --swap-path of a run.",
                    fmt::join(paths, ", ")));
  if (paths.size() == 1)
    for (auto& folders : stores) folders = with_its_other_folders(folders.front());
  return stores;
}

}  // namespace headrace

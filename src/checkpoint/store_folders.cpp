// Which folders below the given swap paths belong to one store.
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <set>

#include "headrace/errors.h"
#include "headrace/inspect.h"

namespace headrace {
namespace {

namespace fs = std::filesystem;
using Folders = std::vector<std::string>;

bool holds_store(const std::string& folder) {
  std::error_code ignored;
  return fs::exists(fs::path(folder) / "store.json", ignored);
}

// What may not be looked into counts: reading it then says why it cannot be read.
bool may_hold_store(const fs::path& folder) {
  std::error_code error;
  return fs::exists(folder / "store.json", error) || error == std::errc::permission_denied;
}

std::optional<std::uint64_t> rank_of(const std::string& name) {
  constexpr std::string_view prefix = "rank-";
  if (name.size() <= prefix.size() || !name.starts_with(prefix) ||
      name.find_first_not_of("0123456789", prefix.size()) != std::string::npos)
    return std::nullopt;
  return std::strtoull(name.c_str() + prefix.size(), nullptr, 10);
}

void add_ranks(const std::string& path, std::set<std::uint64_t>& ranks) {
  std::error_code error;
  fs::directory_iterator entry(path, error);
  if (error == std::errc::permission_denied)
    throw UsageError(fmt::format(
        "{} cannot be read: {}. Inspect it as the user who runs the job, or have that user allow it (chmod).",
        path, error.message()));
  for (; !error && entry != fs::directory_iterator(); entry.increment(error))
    if (const auto rank = rank_of(entry->path().filename().string()); rank && may_hold_store(entry->path()))
      ranks.insert(*rank);
}

// With the others of a store of which some folders are given, and nothing else.
Folders with_siblings(const Folders& given) {
  try {
    Folders all = SwapStore::directories_of(given);
    const auto is_of_the_store = [&](const std::string& folder) {
      return std::find(all.begin(), all.end(), folder) != all.end();
    };
    if (all.size() > given.size() && std::all_of(given.begin(), given.end(), is_of_the_store)) return all;
  } catch (const Error&) {  // what opens it says what is wrong
  }
  return given;
}

}  // namespace

std::vector<std::vector<std::string>> swap_stores_in(const std::vector<std::string>& paths) {
  if (std::any_of(paths.begin(), paths.end(), holds_store)) return {with_siblings(paths)};
  std::set<std::uint64_t> ranks;  // in numeric order: rank-100000 comes after rank-99999
  for (const std::string& path : paths) add_ranks(path, ranks);
  if (ranks.empty())
    throw UsageError(
        fmt::format("there is no swap store in {}: neither store.json nor a folder rank-00000 with one. "
                    "Give the --swap-path of a run, or a checkpoint.",
                    fmt::join(paths, ", ")));
  std::vector<Folders> stores;
  for (const std::uint64_t rank : ranks) {
    Folders folders;
    for (const std::string& path : paths)
      folders.push_back((fs::path(path) / fmt::format("rank-{:05}", rank)).string());
    stores.push_back(with_siblings(folders));
  }
  return stores;
}

}  // namespace headrace

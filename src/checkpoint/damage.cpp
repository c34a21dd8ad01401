#include "src/checkpoint/damage.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

namespace headrace {
namespace {

std::string folder_of(const SwapStore::Extent& piece) {
  return std::filesystem::path(piece.path).parent_path().string();
}

std::string blocks_text(std::uint64_t count) {
  return fmt::format("{} block{}", count, count == 1 ? "" : "s");
}

}  // namespace

std::string swap_path_of(const std::string& folder) {
  const std::filesystem::path path(folder);
  if (!path.filename().string().starts_with("rank-")) return folder;
  const std::filesystem::path above = path.parent_path();
  return above.empty() ? "." : above.string();
}

void Damage::add(const std::vector<SwapStore::Extent>& pieces,
                 const std::vector<SwapStore::DamagedPiece>& found, bool parity, std::uint32_t spare) {
  parity_ = parity_ || parity;
  for (const SwapStore::Extent& piece : pieces) ++folders_[folder_of(piece)].read;
  for (const SwapStore::DamagedPiece& wrong : found) {
    Pieces& there = folders_[folder_of(pieces.at(wrong.piece))];
    if (there.damaged++ == 0) there.first = wrong.problem;
  }
  damaged_blocks_ += !found.empty();
  if (found.size() > spare && lost_blocks_++ == 0) first_lost_ = found.front().problem;
}

Damage::Pieces Damage::in(const std::string& folder) const {
  const auto found = folders_.find(folder);
  return found == folders_.end() ? Pieces{} : found->second;
}

std::vector<std::string> Damage::lines(const std::vector<std::string>& swap_paths) const {
  std::map<std::string, Pieces> paths;
  for (const auto& [folder, pieces] : folders_) {
    Pieces& path = paths[swap_path_of(folder)];
    path.read += pieces.read;
    path.damaged += pieces.damaged;
    if (path.first.empty()) path.first = pieces.first;
  }
  const std::string repair = repair_command({}, swap_paths);
  std::vector<std::string> lines;
  for (const auto& [name, path] : paths) {
    if (path.damaged == 0) continue;
    std::string line =
        fmt::format("{}: {} of {} {} damaged", name, path.damaged, path.read, parity_ ? "pieces" : "blocks");
    if (!parity_) line += fmt::format("; the first: {}.", path.first);
    if (parity_ && is_whole()) line += fmt::format("; whole by parity: {}", repair);
    lines.push_back(std::move(line));
  }
  if (is_whole()) return lines;
  if (!parity_) {
    lines.back() +=
        fmt::format(" This store has no parity, so nothing can be rebuilt: restore extents.bin, or {}.",
                    how_to_start_anew);
    return lines;
  }
  lines.push_back(
      fmt::format("{} cannot be rebuilt by parity; the first: {}. Restore what was on the paths, or {}.",
                  blocks_text(lost_blocks_), first_lost_, how_to_start_anew));
  if (const std::uint64_t others = damaged_blocks_ - lost_blocks_; others > 0)
    lines.push_back(fmt::format("{} more {} damaged and can be rebuilt: {}", blocks_text(others),
                                others == 1 ? "is" : "are", repair));
  return lines;
}

}  // namespace headrace

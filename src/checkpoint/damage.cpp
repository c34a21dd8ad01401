#include "src/checkpoint/damage.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

namespace headrace {
namespace {

std::string path_of(const SwapStore::Extent& piece) {
  return swap_path_of(std::filesystem::path(piece.path).parent_path().string());
}

// Whoever reads this has called inspect already.
std::string without_advice(const std::string& error) {
  const std::size_t advice = error.find("`headrace inspect");
  if (advice == std::string::npos) return error;
  const std::size_t sentence = error.rfind(". ", advice);
  return sentence == std::string::npos ? error : error.substr(0, sentence + 1);
}

// A line ends with one full stop, whatever the words from below end with.
std::string as_sentence(std::string text) {
  if (!text.ends_with('.')) text += '.';
  return text;
}

}  // namespace

std::string swap_path_of(const std::string& rank_folder) {
  const std::filesystem::path above = std::filesystem::path(rank_folder).parent_path();
  return above.empty() ? rank_folder : above.string();
}

void Damage::add_good(const std::vector<SwapStore::Extent>& pieces) {
  for (const SwapStore::Extent& piece : pieces) ++paths_[path_of(piece)].pieces;
}

void Damage::add_pieces(const std::vector<SwapStore::Extent>& pieces, std::uint32_t parity,
                        const std::vector<std::string>& found) {
  add_good(pieces);
  parity_ = true;
  for (const std::string& wrong : found) {
    const auto piece = std::find_if(pieces.begin(), pieces.end(), [&](const SwapStore::Extent& each) {
      return wrong.find(fmt::format(" {} at offset {}:", each.path, each.offset)) != std::string::npos;
    });
    if (piece != pieces.end()) {
      Path& path = paths_[path_of(*piece)];
      if (path.damaged++ == 0) path.first = wrong;
    }
    details_.push_back(wrong);
  }
  if (found.size() <= parity) return;
  if (unreadable_++ == 0) first_unreadable_ = found.front();
}

void Damage::add_block(const std::vector<SwapStore::Extent>& pieces, const std::string& error) {
  add_good(pieces);
  const std::string words = without_advice(error);
  details_.push_back(words);
  if (pieces.size() > 1) {
    if (unreadable_++ == 0) first_unreadable_ = words;
    return;
  }
  Path& path = paths_[pieces.empty() ? "" : path_of(pieces.front())];
  if (path.damaged++ == 0) path.first = words;
}

std::vector<std::string> Damage::lines(const std::vector<std::string>& swap_paths, bool details) const {
  std::vector<std::string> lines;
  for (const auto& [name, path] : paths_) {
    if (path.damaged == 0) continue;
    std::string line = fmt::format("{}: {} of {} {} damaged", name, path.damaged, path.pieces,
                                   parity_ ? "pieces" : "blocks");
    if (!parity_)
      line += fmt::format("; the first: {}", as_sentence(path.first));
    else if (unreadable_ == 0)
      line += fmt::format("; whole by parity: {}", repair_command({}, swap_paths));
    lines.push_back(std::move(line));
  }
  if (unreadable_ > 0)
    lines.push_back(fmt::format("{} block{} cannot be rebuilt by parity; the first: {}", unreadable_,
                                unreadable_ == 1 ? "" : "s", as_sentence(first_unreadable_)));
  if (details) lines.insert(lines.end(), details_.begin(), details_.end());
  return lines;
}

}  // namespace headrace

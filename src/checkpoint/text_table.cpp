#include "src/checkpoint/text_table.h"

#include <fmt/format.h>

#include <algorithm>

namespace headrace {

TextTable::TextTable(std::vector<std::string> header, std::vector<bool> right) : right_(std::move(right)) {
  rows_.push_back(std::move(header));
}

std::string TextTable::text(std::size_t indent) const {
  std::vector<std::size_t> widths(right_.size());
  for (const auto& row : rows_)
    for (std::size_t column = 0; column < row.size(); ++column)
      widths[column] = std::max(widths[column], row[column].size());
  std::string out;
  for (const auto& row : rows_) {
    std::string line(indent, ' ');
    for (std::size_t column = 0; column < row.size(); ++column)
      line += right_[column] ? fmt::format("{:>{}}  ", row[column], widths[column])
                             : fmt::format("{:<{}}  ", row[column], widths[column]);
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + '\n';
  }
  return out;
}

}  // namespace headrace

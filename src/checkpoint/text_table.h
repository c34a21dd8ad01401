// Rows of text in columns as wide as their widest cell.
#pragma once

#include <string>
#include <vector>

namespace headrace {

class TextTable {
 public:
  // `right` says for each column whether it is flush right, as numbers are.
  TextTable(std::vector<std::string> header, std::vector<bool> right);
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  // Each line behind `indent` spaces.
  std::string text(std::size_t indent) const;

 private:
  std::vector<std::vector<std::string>> rows_;  // the header first
  std::vector<bool> right_;
};

}  // namespace headrace

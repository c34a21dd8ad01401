// What `generate` says: the tokens of one sequence as they come, those of several when all are there, or one
// JSON object at the end.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "headrace/generate.h"
#include "src/cli/generate_prompt.h"

namespace headrace::cli {

class TokenPrinter {
 public:
  TokenPrinter(const Prompt& prompt, const GenerateOptions& options, const WeightFacts& facts, bool json);
  void token(std::int32_t id);
  void finish(const GenerateReport& report);

 private:
  // As bytes, or as ids with commas between them.
  std::string text_of(const std::vector<std::int32_t>& tokens) const;
  bool is_shown(std::int32_t id) const;
  std::string json_of(const GenerateReport& report) const;

  const Prompt& prompt_;
  const GenerateOptions& options_;
  const WeightFacts& facts_;
  bool json_;
  bool streams_ = !json_ && options_.count == 1;
  char last_ = 0;  // byte printed
};

// Lines for stderr: of what is used, and of what was done.
std::string loaded_line(const WeightFacts& facts, const GenerateReport& report, int count);
std::string done_line(const GenerateReport& report, const GenerateOptions& options);

}  // namespace headrace::cli

// What `generate` goes on from, as token ids: text is taken as bytes, which are right for a model that was
// trained on them and for no other.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "headrace/weight_source.h"

namespace headrace::cli {

struct PromptFlags {
  std::vector<std::string> text, file, tokens, token_bits;
  bool bytes = false;  // the model was trained on bytes
};

struct Prompt {
  std::vector<std::int32_t> tokens;
  bool is_text = false;
};
// UsageError where none is given or several are, where text is no use to the model, and where there are more
// tokens than it has positions.
Prompt read_prompt(const PromptFlags& flags, const WeightFacts& facts);

}  // namespace headrace::cli

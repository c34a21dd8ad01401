#include "src/cli/generate_prompt.h"

#include <fmt/format.h>

#include <cstdio>

#include "headrace/data.h"
#include "headrace/errors.h"
#include "headrace/files.h"
#include "headrace/train.h"
#include "src/cli/bench_flags.h"
#include "src/cli/commands.h"
#include "src/cli/flag_values.h"

namespace headrace::cli {
namespace {

constexpr int byte_values = 256;

bool reads_bytes(const PromptFlags& flags, const WeightFacts& facts) {
  return flags.bytes || trained_on_text(facts.run) || facts.config.vocabulary == byte_values;
}

// Why text is refused, and what to do.
std::string needs_ids(const WeightFacts& facts) {
  const std::string tokenizer = files::join(facts.path, "tokenizer.json");
  if (files::file_exists(tokenizer))
    return fmt::format(
        "its text is made token ids by {0}, which headrace does not read. Make ids of the text with "
        "transformers and give them as --tokens:\n  python3 -c \"import transformers; "
        "print(*transformers.AutoTokenizer.from_pretrained('{1}').encode('TEXT'), sep=',')\"",
        tokenizer, facts.path);
  if (!facts.run.empty())
    return "its run read token ids and no text. Make ids of the text with the tokenizer that made the run's "
           "data, and give them as --tokens 1,2,3 or --prompt-file FILE.bin.";
  return fmt::format(
      "whether it was trained on bytes is not known: its vocabulary has {} ids. Say --bytes if it was; else "
      "make ids of the text with its tokenizer, and give them as --tokens 1,2,3.",
      facts.config.vocabulary);
}

void require_bytes(const std::string& flag, const PromptFlags& flags, const WeightFacts& facts) {
  if (!reads_bytes(flags, facts))
    throw UsageError(
        fmt::format("{} is text, which {} does not read: {}", flag, facts.path, needs_ids(facts)));
  if (facts.config.vocabulary < byte_values)
    throw UsageError(
        fmt::format("{} is text, which is read as bytes, of which there are {}: the vocabulary of {} is {}. "
                    "Give --tokens 1,2,3.",
                    flag, byte_values, facts.path, facts.config.vocabulary));
}

Prompt of_text(const std::string& text) {
  Prompt prompt{.tokens = {}, .is_text = true};
  for (const char byte : text) prompt.tokens.push_back(static_cast<unsigned char>(byte));
  return prompt;
}

// A byte more than the model has positions for is enough to know that it is too much.
Prompt of_standard_input(const PromptFlags& flags, const WeightFacts& facts) {
  require_bytes("--prompt-file -", flags, facts);
  std::string text(static_cast<std::size_t>(facts.config.max_positions) + 1, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), stdin));
  if (std::ferror(stdin) != 0) throw Error("--prompt-file -: standard input cannot be read.");
  if (text.empty()) throw UsageError("--prompt-file -: there is nothing on standard input.");
  if (text.size() > static_cast<std::size_t>(facts.config.max_positions))
    throw UsageError(fmt::format(
        "--prompt-file -: more bytes came than the model has positions, {}. Give the last of them.",
        facts.config.max_positions));
  return of_text(text);
}

Prompt of_file(const PromptFlags& flags, const WeightFacts& facts) {
  const std::string& path = only_value("--prompt-file", flags.file);
  if (path == "-") return of_standard_input(flags, facts);
  const bool is_text = !path.ends_with(".bin");
  if (is_text) require_bytes("--prompt-file", flags, facts);
  const unsigned bits[] = {0, 16, 32};
  const Tokens tokens = Tokens::open(path, facts.config.vocabulary,
                                     bits[choice_of("--token-bits", flags.token_bits, {"auto", "16", "32"})]);
  if (tokens.count() > static_cast<std::uint64_t>(facts.config.max_positions))
    throw UsageError(
        fmt::format("--prompt-file: {} holds {} {}s, and the model has {} positions. Give the last of "
                    "them.",
                    path, tokens.count(), tokens.noun(), facts.config.max_positions));
  Prompt prompt{.tokens = std::vector<std::int32_t>(tokens.count()), .is_text = is_text};
  tokens.read(0, prompt.tokens);
  return prompt;
}

Prompt of_ids(const PromptFlags& flags, const WeightFacts& facts) {
  Prompt prompt;
  for (const std::string& word : words_of("--tokens", flags.tokens))
    prompt.tokens.push_back(
        static_cast<std::int32_t>(number_of("--tokens", word, 0, facts.config.vocabulary - 1, true)));
  return prompt;
}

}  // namespace

Prompt read_prompt(const PromptFlags& flags, const WeightFacts& facts) {
  const int given = !flags.text.empty() + !flags.file.empty() + !flags.tokens.empty();
  if (given != 1)
    throw UsageError(fmt::format(
        "{}: --prompt TEXT, --prompt-file FILE, or --tokens 1,2,3.",
        given == 0 ? "there is nothing to go on from. Give one" : "there are several prompts. Give one"));
  if (!flags.file.empty()) return of_file(flags, facts);
  if (!flags.tokens.empty()) return of_ids(flags, facts);
  if (flags.text.size() > 1) throw UsageError("--prompt is given twice. Keep one of them.");
  require_bytes("--prompt", flags, facts);
  return of_text(flags.text.back());
}

}  // namespace headrace::cli

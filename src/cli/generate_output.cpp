#include "src/cli/generate_output.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "src/cli/json_text.h"

namespace headrace::cli {
namespace {

using Json = nlohmann::ordered_json;
using Ended = GeneratedSequence::Ended;

const char* name_of_end(Ended ended) {
  constexpr const char* names[] = {"length", "end_token", "positions", "stopped"};
  return names[static_cast<std::size_t>(ended)];
}

std::size_t tokens_of(const GenerateReport& report) {
  std::size_t tokens = 0;
  for (const GeneratedSequence& sequence : report.sequences) tokens += sequence.tokens.size();
  return tokens;
}

Json sampling_json(const SamplingOptions& sampling) {
  return {{"temperature", sampling.temperature},
          {"top_k", sampling.top_k},
          {"top_p", sampling.top_p},
          {"seed", sampling.seed}};
}

}  // namespace

TokenPrinter::TokenPrinter(const Prompt& prompt, const GenerateOptions& options, const WeightFacts& facts,
                           bool json)
    : prompt_(prompt), options_(options), facts_(facts), json_(json) {}

// An end token has no place in a text.
bool TokenPrinter::is_shown(std::int32_t id) const {
  const std::vector<std::int32_t>& ends = facts_.config.end_tokens;
  return !prompt_.is_text || !options_.stops_at_end || std::ranges::find(ends, id) == ends.end();
}

void TokenPrinter::token(std::int32_t id) {
  if (!streams_ || !is_shown(id)) return;
  if (prompt_.is_text)
    std::putchar(last_ = static_cast<char>(id));
  else
    fmt::print("{}{}", last_ == 0 ? "" : ",", id), last_ = ',';
  std::fflush(stdout);
}

void TokenPrinter::finish(const GenerateReport& report) {
  if (json_) {
    fmt::print("{}", json_of(report));
  } else if (streams_) {
    if (options_.max_tokens > 0 && last_ != '\n') fmt::print("\n");
  } else {
    for (std::size_t s = 0; s < report.sequences.size(); ++s) {
      if (prompt_.is_text) fmt::print("--- {} of {}\n", s + 1, report.sequences.size());
      const std::string text = text_of(report.sequences[s].tokens);
      std::fwrite(text.data(), 1, text.size(), stdout);
      if (!text.ends_with('\n')) fmt::print("\n");
    }
  }
  std::fflush(stdout);
}

std::string TokenPrinter::text_of(const std::vector<std::int32_t>& tokens) const {
  std::string text;
  for (const std::int32_t id : tokens) {
    if (!is_shown(id)) continue;
    if (prompt_.is_text)
      text.push_back(static_cast<char>(id));
    else
      text += fmt::format("{}{}", text.empty() ? "" : ",", id);
  }
  return text;
}

std::string TokenPrinter::json_of(const GenerateReport& report) const {
  Json sequences = Json::array();
  for (const GeneratedSequence& sequence : report.sequences) {
    Json one = {{"tokens", sequence.tokens}};
    if (prompt_.is_text) one["text"] = text_of(sequence.tokens);
    one["ended"] = name_of_end(sequence.ended);
    sequences.push_back(std::move(one));
  }
  return json_text({{"weights", facts_.path},
                    {"device", report.device},
                    {"dtype", name_of(report.dtype)},
                    {"sampling", sampling_json(options_.sampling)},
                    {"prompt", prompt_.tokens},
                    {"sequences", std::move(sequences)},
                    {"positions", report.positions},
                    {"bytes",
                     {{"weights", report.weights_bytes},
                      {"keys_and_values", report.cache_bytes},
                      {"all", report.device_bytes}}},
                    {"seconds",
                     {{"load", report.load_seconds},
                      {"prompt", report.prompt_seconds},
                      {"tokens", report.token_seconds}}}});
}

std::string loaded_line(const WeightFacts& facts, const GenerateReport& report, int count) {
  return fmt::format(
      "{} ({}): {} of weights in {} on {}, {} of keys and values for {} positions{}; loaded in {:.1f} s",
      facts.path, facts.summary, format_bytes(report.weights_bytes), name_of(report.dtype), report.device,
      format_bytes(report.cache_bytes), report.positions,
      count == 1 ? "" : fmt::format(" of {} sequences", count), report.load_seconds);
}

std::string done_line(const GenerateReport& report, const GenerateOptions& options) {
  const std::size_t tokens = tokens_of(report);
  const double seconds = std::max(report.token_seconds, 1e-6);
  std::string text = fmt::format("prompt of {} token{} in {:.2f} s", options.prompt.size(),
                                 options.prompt.size() == 1 ? "" : "s", report.prompt_seconds);
  if (tokens > 0)
    text += fmt::format(", {} token{} in {:.2f} s ({:.1f} a second)", tokens, tokens == 1 ? "" : "s",
                        report.token_seconds, static_cast<double>(tokens) / seconds);
  return text;
}

}  // namespace headrace::cli

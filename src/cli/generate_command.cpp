#include <fmt/format.h>

#include <optional>

#include "headrace/errors.h"
#include "headrace/generate.h"
#include "headrace/io_engine.h"
#include "headrace/log.h"
#include "src/cli/commands.h"
#include "src/cli/flag_values.h"
#include "src/cli/generate_output.h"
#include "src/cli/generate_prompt.h"
#include "src/cli/interrupt.h"
#include "src/cli/logits_file.h"

namespace headrace::cli {
namespace {

struct GenerateFlags {
  std::string weights;
  PromptFlags prompt;
  std::vector<std::string> max_tokens, count, temperature, top_k, top_p, seed, dtype, device, device_memory,
      threads, logits;
  bool ignore_end = false, json = false, quiet = false;
};

double number_or(double usual, const std::string& flag, const std::vector<std::string>& given, double least,
                 double most, bool whole) {
  return given.empty() ? usual : number_of(flag, only_value(flag, given), least, most, whole);
}
int whole_or(int usual, const std::string& flag, const std::vector<std::string>& given, int least, int most) {
  return static_cast<int>(number_or(usual, flag, given, least, most, true));
}

SamplingOptions sampling_of(const GenerateFlags& flags) {
  constexpr double largest_seed = 9007199254740992.0;  // 2^53
  return {.temperature = number_or(1, "--temperature", flags.temperature, 0, 1000, false),
          .top_k = whole_or(0, "--top-k", flags.top_k, 0, 1 << 24),
          .top_p = number_or(1, "--top-p", flags.top_p, 1e-9, 1, false),
          .seed = static_cast<std::uint64_t>(number_or(0, "--seed", flags.seed, 0, largest_seed, true))};
}

GenerateOptions options_of(const GenerateFlags& flags, const Prompt& prompt) {
  constexpr DType dtypes[] = {DType::f32, DType::bf16, DType::f16};
  constexpr int byte_values = 256;
  GenerateOptions options{.prompt = prompt.tokens,
                          .max_tokens = whole_or(256, "--max-tokens", flags.max_tokens, 0, 1 << 24),
                          .count = whole_or(1, "--count", flags.count, 1, 4096),
                          .sampling = sampling_of(flags),
                          .drawn_ids = prompt.is_text ? byte_values : 0,
                          .stops_at_end = !flags.ignore_end,
                          .all_logits = !flags.logits.empty(),
                          .dtype = {}};
  if (!flags.dtype.empty())
    options.dtype = dtypes[choice_of("--dtype", flags.dtype, {"fp32", "bf16", "fp16"})];
  options.device =
      choice_of("--device", flags.device, {"cpu", "cuda"}) == 0 ? DeviceKind::cpu : DeviceKind::cuda;
  if (!flags.device_memory.empty()) {
    const std::string& text = only_value("--device-memory", flags.device_memory);
    options.device_memory_bytes = parse_bytes(text, "--device-memory");
    if (options.device_memory_bytes == 0) throw UsageError("--device-memory 0 holds no model.");
  }
  options.threads = whole_or(0, "--threads", flags.threads, 1, 4096);
  if (options.all_logits && options.count > 1)
    throw UsageError("--logits is of one sequence: leave --count out.");
  return options;
}

void refuse_a_job() {
  if (const LaunchInfo launch = launch_info(); launch.size > 1)
    throw UsageError(fmt::format("generate runs in one process, but {} started {} ranks. Start it alone.",
                                 launch.launcher, launch.size));
}

int run(const GenerateFlags& flags) {
  refuse_a_job();
  if (flags.quiet) set_log_level(LogLevel::quiet);
  const Interrupt interrupt;
  const auto io = make_io_engine({});
  const auto weights = open_weight_source(flags.weights, *io);
  const WeightFacts& facts = weights->facts();
  const Prompt prompt = read_prompt(flags.prompt, facts);
  const GenerateOptions options = options_of(flags, prompt);
  std::optional<LogitsFile> logits;
  TokenPrinter printer(prompt, options, facts, flags.json);
  GenerateEvents events{
      .loaded = [&](const GenerateReport& report) { log_info(loaded_line(facts, report, options.count)); },
      .token = [&](int, std::int32_t token) { printer.token(token); },
      .stop_requested = [&] { return interrupt.requested(); }};
  if (options.all_logits) {
    logits.emplace(only_value("--logits", flags.logits), facts.config.vocabulary);
    events.logits = [&](int, std::span<const float> row) { logits->add(row); };
  }
  const GenerateReport report = generate(*weights, options, events);
  printer.finish(report);
  if (logits) logits->close();
  log_info(done_line(report, options));
  for (const GeneratedSequence& sequence : report.sequences)
    if (sequence.ended == GeneratedSequence::Ended::positions)
      warn_once("positions",
                fmt::format("ended after {} tokens: the model has {} positions, and all are used",
                            sequence.tokens.size(), facts.config.max_positions));
  if (report.stopped) log_warning("stopped by a signal");
  return report.stopped ? Interrupt::exit_status : 0;
}

}  // namespace

void add_generate(CLI::App& program, int& status) {
  CLI::App* command =
      program.add_subcommand("generate", "write text or token ids with a checkpoint or a model folder");
  const auto flags = std::make_shared<GenerateFlags>();
  const auto add = [&](const char* flag, std::vector<std::string>& values, const char* meaning,
                       const char* type) {
    collect_values(command->add_option(flag, values, meaning))->type_name(type);
  };
  command
      ->add_option("WEIGHTS", flags->weights,
                   "a checkpoint, a run's --checkpoint-dir (its newest), or a model's folder")
      ->required()
      ->type_name("DIR");
  add("--prompt", flags->prompt.text, "text to go on from, for a model that was trained on bytes", "TEXT");
  add("--prompt-file", flags->prompt.file,
      "the same from a file, - for standard input; of NAME.bin token ids", "FILE");
  add("--tokens", flags->prompt.tokens, "token ids to go on from, for any model", "ID,ID,...");
  add("--token-bits", flags->prompt.token_bits, "of ids in NAME.bin: 16 or 32 (default: as --data of train)",
      "N");
  command->add_flag("--bytes", flags->prompt.bytes, "the model was trained on bytes, though nothing says so");
  add("--max-tokens", flags->max_tokens, "tokens to draw; 0 reads the prompt alone (default 256)", "N");
  add("--temperature", flags->temperature, "divides the logits; 0 takes the likeliest token (default 1)",
      "X");
  add("--top-k", flags->top_k, "draw among the likeliest N; 0: all (default 0)", "N");
  add("--top-p", flags->top_p, "draw among the likeliest with this probability together (default 1)", "X");
  add("--seed", flags->seed, "of the draws (default 0)", "N");
  add("--count", flags->count, "so many sequences, side by side (default 1)", "N");
  command->add_flag("--ignore-end", flags->ignore_end, "go on behind the end token of config.json");
  add("--dtype", flags->dtype, "compute in fp32, bf16 or fp16 (default: as the weights are)", "TYPE");
  add("--device", flags->device, "cpu or cuda (default cpu)", "NAME");
  add("--device-memory", flags->device_memory, "most memory to take (default: what is available)", "SIZE");
  add("--threads", flags->threads, "CPU threads (default: this machine's)", "N");
  add("--logits", flags->logits, "write those of every position here, as a NumPy file", "FILE.npy");
  command->add_flag("--json", flags->json, "print one JSON object at the end");
  command->add_flag("--quiet", flags->quiet, "nothing but warnings on stderr");
  command->footer(
      "Text goes in and out as bytes; headrace has no tokenizer. A prompt of ids is answered with ids.\n"
      "Tokens are printed as they come; several sequences, and JSON, at the end. The same command gives the\n"
      "same tokens. It ends after --max-tokens, at an end token (eos_token_id of config.json), or where the\n"
      "model has no more positions, with a warning.\n"
      "Exit status: 0 done, 1 failed, 2 wrong usage, 3 does not fit, 130 stopped (Ctrl-C).\n\n"
      "Example: go on from a text with the newest checkpoint of a run\n"
      "  headrace generate runs/a --prompt 'int main(' --max-tokens 200 --temperature 0.8 --top-p 0.95\n"
      "Example: the likeliest tokens behind some ids, by a model of Hugging Face's\n"
      "  headrace generate ./gpt2 --tokens 464,3139,286,4881,318 --temperature 0 --max-tokens 20\n"
      "Example: logits of a text's ids, to compare\n"
      "  headrace generate ./gpt2 --tokens 464,3139,286 --max-tokens 0 --logits logits.npy");
  command->callback([flags, &status] { status = run(*flags); });
}

}  // namespace headrace::cli

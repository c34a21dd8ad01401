#include <fmt/format.h>
#include <fmt/ranges.h>

#include "headrace/checkpoint_report.h"
#include "headrace/elapsed.h"
#include "headrace/errors.h"
#include "headrace/model_folder.h"
#include "src/cli/commands.h"

namespace headrace::cli {
namespace {

struct ExportFlags {
  std::string checkpoint, to, dtype, shard_size = "5GB";
};

std::optional<DType> dtype_of(const std::string& name) {
  if (name.empty()) return std::nullopt;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    if (name == name_of(dtype)) return dtype;
  throw UsageError(fmt::format("--dtype: \"{}\" is not one of fp32, bf16 and fp16.", shortened(name)));
}

// One tensor, or the rows of it that a file can hold, is never cut: a limit next to nothing is a mistyped
// unit.
Bytes shard_bytes_of(const std::string& text) {
  constexpr Bytes least = Bytes{1} << 10;
  const Bytes bytes = parse_bytes(text, "--shard-size");
  if (bytes < least)
    throw UsageError(fmt::format(
        "--shard-size {} is less than 1KiB, and would make a file of each tensor. Give a size with its unit, "
        "such as 5GB.",
        text));
  return bytes;
}

int run(const ExportFlags& flags) {
  const auto start = std::chrono::steady_clock::now();
  const std::string checkpoint = checkpoint_at(flags.checkpoint);
  const Bytes shard_bytes = shard_bytes_of(flags.shard_size);
  const auto io = make_io_engine({});
  const ExportedModel model = export_checkpoint(checkpoint, flags.to, *io,
                                                {.dtype = dtype_of(flags.dtype), .shard_bytes = shard_bytes});
  fmt::print("wrote {} from {}: {}, {} in {:.1f} s\n", flags.to, checkpoint, fmt::join(model.files, ", "),
             format_bytes(model.bytes), seconds_since(start));
  return 0;
}

}  // namespace

void add_export(CLI::App& program, int& status) {
  CLI::App* command =
      program.add_subcommand("export", "write a checkpoint's weights as a folder that transformers opens");
  const auto flags = std::make_shared<ExportFlags>();
  command
      ->add_option("CHECKPOINT", flags->checkpoint,
                   "a folder like runs/a/step-00001200, or of some: the newest")
      ->required();
  command->add_option("--to", flags->to, "the folder to make: it does not exist yet, or is empty")
      ->required()
      ->type_name("DIR");
  command->add_option("--dtype", flags->dtype, "fp32, bf16 or fp16 (default: of the run's parameters)")
      ->type_name("TYPE");
  command->add_option("--shard-size", flags->shard_size, "most data of one file (default 5GB)")
      ->type_name("SIZE");
  command->footer(
      "The folder has config.json and safetensors files; it is complete or not there. Memory does not grow "
      "with\n"
      "the model. `train --model DIR` opens it too.\n\n"
      "Example:\n"
      "  headrace export runs/a/step-00001200 --to gpt2-mine --dtype bf16\n"
      "  python3 -c \"import transformers; transformers.AutoModelForCausalLM.from_pretrained('gpt2-mine')\"");
  command->callback([flags, &status] { status = run(*flags); });
}

}  // namespace headrace::cli

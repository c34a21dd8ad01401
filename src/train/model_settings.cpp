// Settings of the model, the data and the length of the run.
#include <fmt/format.h>

#include "headrace/errors.h"
#include "src/train/setting_access.h"
#include "src/train/setting_groups.h"

namespace headrace::settings {
namespace {

constexpr const char* group = "Model and data";
constexpr const char* batch = "Batch and length of the run";

// "gpt2-nano|mini, llama-nano": names of one family follow each other and share what stands before the dash.
std::string preset_list() {
  std::string list, family;
  for (const std::string& name : model_preset_names()) {
    const std::size_t dash = name.find('-') + 1;
    const bool another = name.substr(0, dash) != family;
    if (!list.empty()) list += another ? ", " : "|";
    list += another ? name : name.substr(dash);
    family = name.substr(0, dash);
  }
  return list;
}

void set_dtype(Settings& settings, const ConfigValue& value) {
  settings.dtype = static_cast<DType>(value.choice({"fp32", "bf16", "fp16"}));
}
Json get_dtype(const Settings& settings) {
  return name_of(settings.dtype);
}

void set_token_bits(Settings& settings, const ConfigValue& value) {
  settings.token_bits = static_cast<unsigned>(value.count(16, 32));
  if (settings.token_bits != 16 && settings.token_bits != 32) value.refuse("16 or 32");
}

}  // namespace

std::vector<NativeSetting> model_group() {
  return {
      {{"model", group, "NAME|DIR", fmt::format("{} or a folder (required)", preset_list())},
       set_text<&S::model>,
       get_optional_text<&S::model>},
      {{"data", group, "PATH",
        "text as bytes (a file, or all below a folder), or token ids in FILE.bin (required)", true},
       set_text<&S::data_path>,
       get_optional_text<&S::data_path>},
      {{"token_bits", group, "16|32",
        "bits of an id in a .bin file without a header (default: what the vocabulary needs)", true},
       set_token_bits,
       get_size<&S::token_bits>},
      {{"eval_data", group, "PATH", "held-out text, or token ids; its loss is reported (default none)", true},
       set_text<&S::eval_path>,
       get_optional_text<&S::eval_path>},
      {{"eval_every", group, "N", "held-out loss every N steps (default 0: at the end only)", true},
       set_count<&S::eval_every, 0, largest_count>,
       get<&S::eval_every>},
      {{"eval_batches", group, "N", "micro-batches a rank evaluates, always the same ones (default 8)", true},
       set_count<&S::eval_batches, 1, int_max>,
       get<&S::eval_batches>},
      {{"sequence_length", group, "N",
        "tokens of a sequence (default 256, or fewer where the model has fewer)"},
       set_count<&S::sequence_length, 1, int_max>,
       get_optional<&S::sequence_length>},
      {{"dtype", group, "TYPE", "bf16, fp16 or fp32: parameters, gradients, arithmetic (default bf16)"},
       set_dtype,
       get_dtype},
      {{"recompute", group, "",
        "keep only block inputs, run forward again in backward: less memory, more time"},
       set_boolean<&S::recompute>,
       get<&S::recompute>},
  };
}

std::vector<NativeSetting> batch_group() {
  return {
      {{"steps", batch, "N", "optimizer steps of the whole run, resumed ones included (default 100)", true},
       set_count<&S::steps, 1, largest_count>,
       get<&S::steps>},
      {{"batch_size", batch, "N", "sequences of one rank's micro-batch (default 8)"},
       set_batch<&BatchSizes::micro>,
       get_batch<&BatchSizes::micro>},
      {{"accumulation", batch, "N", "micro-batches of a step (default 1)"},
       set_batch<&BatchSizes::accumulation>,
       get_batch<&BatchSizes::accumulation>},
      {{"global_batch_size", batch, "N", "sequences of a step over all ranks (default: from the two above)"},
       set_batch<&BatchSizes::global>,
       get_batch<&BatchSizes::global>},
      {{"seed", batch, "N", "of initial weights and data order (default 0)", true},
       set_count<&S::seed>,
       get<&S::seed>},
  };
}

}  // namespace headrace::settings

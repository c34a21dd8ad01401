// make_model FOLDER fp32|bf16|fp16 SHARD-BYTES tied|untied: exports a small GPT-2 of known values as a model
// folder, for transformers to open.
#include <cstdio>
#include <string>

#include "tests/unit/checkpoint/model_files.h"

int main(int argc, char** argv) {
  using namespace headrace;
  if (argc != 5) return 2;
  const std::string dtype = argv[2];
  testing::FunctionSource source(testing::exported_config(std::string(argv[4]) == "tied"));
  try {
    export_model(argv[1], testing::exported_config(std::string(argv[4]) == "tied"), source,
                 {.dtype = dtype == "fp32"   ? DType::f32
                           : dtype == "bf16" ? DType::bf16
                                             : DType::f16,
                  .shard_bytes = std::stoull(argv[3])});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}

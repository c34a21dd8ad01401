// make_model gpt2|llama FOLDER fp32|bf16|fp16 SHARD-BYTES tied|untied: exports a small model of known values
// as a model folder, for transformers to open.
#include <cstdio>
#include <string>

#include "tests/unit/checkpoint/model_files.h"

namespace headrace {
namespace {

// Values of a size that weights have: with larger ones two programs' roundings differ by more than is
// compared.
class SmallValues final : public TensorSource {
 public:
  explicit SmallValues(const ModelConfig& config) : source_(config) {}
  const std::vector<SourceTensor>& tensors() const override { return source_.tensors(); }
  void read(std::size_t tensor, std::uint64_t first, std::span<float> out) override {
    source_.read(tensor, first, out);
    for (float& value : out) value *= 0.125f;
  }

 private:
  testing::FunctionSource source_;
};

}  // namespace
}  // namespace headrace

int main(int argc, char** argv) {
  using namespace headrace;
  if (argc != 6) return 2;
  const std::string dtype = argv[3];
  ModelConfig config = testing::exported_config(std::string(argv[5]) == "tied");
  if (std::string(argv[1]) == "llama")
    config.family = ModelFamily::llama, config.key_heads = 2, config.head_width = 16, config.mlp_width = 72;
  SmallValues source(config);
  try {
    export_model(argv[2], config, source,
                 {.dtype = dtype == "fp32"   ? DType::f32
                           : dtype == "bf16" ? DType::bf16
                                             : DType::f16,
                  .shard_bytes = std::stoull(argv[4])});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "headrace/errors.h"
#include "model_files.h"
#include "src/checkpoint/safetensors.h"
#include "support/temporary_folder.h"

namespace headrace {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using namespace testing;

std::string refusal(const std::string& folder, TensorSource& source, const ExportOptions& options = {}) {
  try {
    export_model(folder, small_config(), source, options);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// Every element of every parameter, read in odd pieces.
void expect_all_values(const std::string& folder, const ModelConfig& config) {
  const auto units = units_of(config);
  const auto weights = ModelWeights::open(folder, config, units);
  ASSERT_TRUE(weights);
  for (const UnitSpec& unit : units)
    for (const ParameterSpec& parameter : unit.parameters)
      for (std::uint64_t first = 0; first < parameter.numel(); first += 7) {
        std::vector<float> piece(std::min<std::uint64_t>(7, parameter.numel() - first));
        weights->read(parameter, first, piece);
        for (std::size_t i = 0; i < piece.size(); ++i)
          ASSERT_EQ(piece[i], value_at(parameter.name, first + i)) << parameter.name << " " << first + i;
      }
}

TEST(ExportModel, every_value_comes_back_in_every_type_and_any_number_of_files) {
  for (const bool tied : {true, false})
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
      for (const Bytes shard_bytes : {Bytes{1}, Bytes{3000}, Bytes{5'000'000'000}}) {
        const TemporaryFolder parent;
        const ModelConfig config = small_config(tied);
        FunctionSource source(config);
        const ExportedModel exported =
            export_model(parent.path("m"), config, source, {.dtype = dtype, .shard_bytes = shard_bytes});
        const ModelConfig read = read_model_config(parent.path("m"));
        EXPECT_EQ(read.tied_embedding, tied);
        expect_all_values(parent.path("m"), read);
        Bytes bytes = 0;
        for (const std::string& file : exported.files)
          bytes += std::filesystem::file_size(parent.path("m/" + file));
        EXPECT_EQ(bytes, exported.bytes);
        EXPECT_EQ(exported.files.size(), parent.names("m").size());
        EXPECT_EQ(exported.files.size() == 2, shard_bytes > 3000);
      }
}

TEST(ExportModel, a_tied_table_is_stored_once_and_names_are_those_of_transformers) {
  const TemporaryFolder parent;
  FunctionSource source(small_config());
  EXPECT_EQ(refusal(parent.path("m"), source), "");
  const SafetensorsFile file = SafetensorsFile::open(parent.path("m/model.safetensors"));
  EXPECT_EQ(file.tensors().size(), source.list.size());
  for (const StoredTensor& tensor : file.tensors())
    EXPECT_THAT(tensor.name, ::testing::StartsWith("transformer."));
  EXPECT_EQ(file.metadata().at("format"), "pt");
}

TEST(ExportModel, a_shard_holds_what_the_limit_allows_and_the_index_their_sum) {
  const TemporaryFolder parent;
  FunctionSource source(small_config());
  export_model(parent.path("m"), small_config(), source, {.dtype = {}, .shard_bytes = 3000});
  nlohmann::json index;
  std::ifstream(parent.path("m/model.safetensors.index.json")) >> index;
  Bytes total = 0;
  for (const std::string& name : parent.names("m"))
    if (name.ends_with(".safetensors")) {
      Bytes data = 0;
      const SafetensorsFile file = SafetensorsFile::open(parent.path("m/" + name));
      for (const StoredTensor& tensor : file.tensors()) data += tensor.bytes;
      EXPECT_LE(data, 3000u) << name;
      total += data;
    }
  EXPECT_EQ(index["metadata"]["total_size"], total);
  EXPECT_EQ(index["weight_map"].size(), source.list.size());
  EXPECT_THAT(parent.names("m"), ::testing::Contains("model-00001-of-00003.safetensors"));
}

TEST(ExportModel, a_source_that_is_not_the_model_writes_nothing_and_lists_why) {
  const TemporaryFolder parent;
  FunctionSource source(small_config());
  source.list.erase(source.list.begin());
  source.list.back().shape = {9};
  EXPECT_THAT(refusal(parent.path("m"), source),
              AllOf(HasSubstr("wte.weight is missing"), HasSubstr("ln_f.bias is 9")));
  EXPECT_THAT(parent.names(), IsEmpty());
}

TEST(ExportModel, a_folder_in_use_is_left_alone) {
  const TemporaryFolder parent;
  FunctionSource source(small_config());
  std::filesystem::create_directory(parent.path("m"));
  EXPECT_EQ(refusal(parent.path("m/"), source), "");  // an empty one is taken
  EXPECT_THAT(refusal(parent.path("m"), source), HasSubstr("is there already"));
  EXPECT_THAT(refusal(parent.path("none/m"), source), HasSubstr("mkdir -p"));
  EXPECT_THAT(parent.names(), ElementsAre("m"));
}

TEST(ExportModel, what_cannot_be_replaced_at_the_end_is_refused_at_the_start) {
  const TemporaryFolder parent;
  FunctionSource source(small_config());
  std::filesystem::create_directory(parent.path("empty"));
  std::filesystem::create_directory_symlink(parent.path("empty"), parent.path("link"));
  EXPECT_THAT(refusal(parent.path("link"), source), HasSubstr("is a link"));
  EXPECT_THAT(refusal(parent.path("empty/."), source), HasSubstr("cannot be replaced"));
  EXPECT_EQ(source.largest_piece, 0u);
  EXPECT_THAT(parent.names(), ElementsAre("empty", "link"));
}

TEST(ExportModel, what_an_interrupted_export_left_is_removed_and_nothing_else) {
  const TemporaryFolder parent;
  FunctionSource source(small_config());
  std::filesystem::create_directory(parent.path("m.partial"));
  write_image(parent.path("m.partial/model-00007-of-00009.safetensors.partial"), "x");
  EXPECT_EQ(refusal(parent.path("m"), source), "");
  EXPECT_THAT(parent.names("m"), ElementsAre("config.json", "model.safetensors"));
  std::filesystem::create_directory(parent.path("n.partial"));
  write_image(parent.path("n.partial/thesis.tex"), "x");
  EXPECT_THAT(refusal(parent.path("n"), source), HasSubstr("thesis.tex"));
  EXPECT_THAT(parent.names("n.partial"), ElementsAre("thesis.tex"));
}

TEST(ExportModel, two_exports_do_not_write_into_one_folder) {
  const TemporaryFolder parent;
  FunctionSource source(small_config());
  std::filesystem::create_directory(parent.path("m.partial"));
  const Fd other{::open(parent.path("m.partial").c_str(), O_RDONLY | O_DIRECTORY)};
  ASSERT_EQ(::flock(other.get(), LOCK_EX), 0);
  EXPECT_THAT(refusal(parent.path("m"), source), HasSubstr("another export"));
}

struct LargeValue final : TensorSource {
  FunctionSource rest{small_config()};
  const std::vector<SourceTensor>& tensors() const override { return rest.tensors(); }
  void read(std::size_t tensor, std::uint64_t first, std::span<float> out) override {
    rest.read(tensor, first, out);
    if (tensor == 4) out[3] = 70000.0f;
  }
};

TEST(ExportModel, a_value_too_large_for_fp16_is_named_and_nothing_is_left) {
  const TemporaryFolder parent;
  LargeValue source;
  EXPECT_THAT(refusal(parent.path("m"), source, {.dtype = DType::f16}),
              AllOf(HasSubstr("h.0.attn.c_attn.weight, element 3: 70000"), HasSubstr("bf16")));
  EXPECT_THAT(parent.names(), IsEmpty());
  EXPECT_EQ(refusal(parent.path("m"), source, {.dtype = DType::bf16}), "");
}

// Ends its process at the n-th tensor.
struct DyingSource final : TensorSource {
  FunctionSource rest{small_config()};
  std::size_t last = 0;
  const std::vector<SourceTensor>& tensors() const override { return rest.tensors(); }
  void read(std::size_t tensor, std::uint64_t first, std::span<float> out) override {
    if (tensor == last) ::_exit(7);
    rest.read(tensor, first, out);
  }
};

TEST(ExportModel, a_process_killed_at_any_tensor_leaves_no_model_and_nothing_in_the_way_of_the_next) {
  const TemporaryFolder parent;
  DyingSource source;
  for (; source.last < source.rest.list.size(); source.last += 3) {
    const pid_t child = ::fork();
    if (child == 0) {
      export_model(parent.path("m"), small_config(), source, {.dtype = {}, .shard_bytes = 1000});
      ::_exit(0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(WEXITSTATUS(status), 7);
    EXPECT_THAT(parent.names(), ElementsAre("m.partial"));
  }
  FunctionSource whole(small_config());
  EXPECT_EQ(refusal(parent.path("m"), whole), "");
  EXPECT_THAT(parent.names("m"), ElementsAre("config.json", "model.safetensors"));
  EXPECT_THAT(parent.names(), ElementsAre("m"));
}

TEST(ExportModel, a_large_tensor_passes_in_pieces) {
  const TemporaryFolder parent;
  ModelConfig config = small_config();
  config.vocabulary = 300'000;  // 2.4 M elements
  FunctionSource source(config);
  export_model(parent.path("m"), config, source, {.dtype = DType::bf16});
  EXPECT_EQ(source.largest_piece, export_piece_numel);
  const auto units = units_of(config);
  const auto weights = ModelWeights::open(parent.path("m"), config, units);
  std::vector<float> table(units[0].parameters[0].numel());
  weights->read(units[0].parameters[0], 0, table);
  for (std::size_t i = 0; i < table.size(); ++i) ASSERT_EQ(table[i], value_at("wte.weight", i)) << i;
}

}  // namespace
}  // namespace headrace

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "headrace/errors.h"
#include "model_files.h"
#include "support/temporary_folder.h"

namespace headrace {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using namespace testing;

class WeightsOfAModel : public ::testing::Test {
 protected:
  std::optional<ModelWeights> open(const ModelConfig& config = small_config()) {
    return ModelWeights::open(folder_.path(), config, units_of(config));
  }
  template <class Kind = UsageError>
  std::string refusal(const ModelConfig& config = small_config()) {
    try {
      open(config);
    } catch (const Kind& error) {
      return error.what();
    }
    return "";
  }
  // The tensors of a file as transformers writes them: its names, F32, all zero.
  static std::vector<FileTensor> file_tensors(const ModelConfig& config = small_config()) {
    std::vector<FileTensor> tensors;
    for (const UnitSpec& unit : units_of(config))
      for (const ParameterSpec& p : unit.parameters)
        tensors.push_back({p.name == "lm_head.weight" ? p.name : "transformer." + p.name,
                           "F32",
                           {p.shape.begin(), p.shape.end()},
                           p.numel() * 4});
    return tensors;
  }
  void write(const std::vector<FileTensor>& tensors, const std::string& name = "model.safetensors") {
    write_image(folder_.path(name), image_of(tensors));
  }
  void write_text(const std::string& name, const std::string& text) { write_image(folder_.path(name), text); }
  static FileTensor& named(std::vector<FileTensor>& tensors, const std::string& name) {
    return *std::ranges::find(tensors, name, &FileTensor::name);
  }
  TemporaryFolder folder_;
};

TEST_F(WeightsOfAModel, a_folder_with_a_configuration_alone_has_none) {
  write_text("config.json", "{}");
  EXPECT_FALSE(open());
}

TEST_F(WeightsOfAModel, names_with_and_without_the_prefix_are_the_same_weights) {
  std::vector<FileTensor> tensors = file_tensors();
  write(tensors);
  EXPECT_TRUE(open());
  for (FileTensor& tensor : tensors) tensor.name = tensor.name.substr(std::string("transformer.").size());
  write(tensors);
  EXPECT_TRUE(open());
  tensors[0].name = "transformer." + tensors[0].name;
  tensors.push_back({"wte.weight", "F32", {11, 8}, 352});
  write(tensors);
  EXPECT_THAT(refusal(),
              AllOf(HasSubstr("wte.weight stands twice, as transformer.wte.weight and wte.weight")));
}

TEST_F(WeightsOfAModel, buffers_of_old_files_are_no_weights) {
  std::vector<FileTensor> tensors = file_tensors();
  tensors.push_back({"transformer.h.0.attn.bias", "BOOL", {1, 1, 6, 6}, 36});
  tensors.push_back({"h.1.attn.masked_bias", "F32", {}, 4});
  write(tensors);
  EXPECT_TRUE(open());
}

TEST_F(WeightsOfAModel, all_differences_are_listed_at_once) {
  std::vector<FileTensor> tensors = file_tensors();
  named(tensors, "transformer.wpe.weight") = {"transformer.wpe.weight", "F32", {7, 8}, 224};
  named(tensors, "transformer.ln_f.bias") = {"transformer.ln_f.bias", "F64", {8}, 64};
  named(tensors, "transformer.h.1.ln_1.bias").name = "transformer.h.1.ln_1.beta";
  named(tensors, "transformer.h.0.attn.c_attn.weight").shape = {24, 8};  // a Linear's orientation
  write(tensors);
  EXPECT_THAT(
      refusal(),
      AllOf(HasSubstr("transformer.wpe.weight is 7 x 8, where the model has 6 x 8"),
            HasSubstr("transformer.ln_f.bias is of type F64"), HasSubstr("h.1.ln_1.bias is missing (8)"),
            HasSubstr("transformer.h.1.ln_1.beta is not a parameter of the model"),
            HasSubstr("transformer.h.0.attn.c_attn.weight is 24 x 8, where the model has 8 x 24"),
            HasSubstr("Nothing was changed"), Not(HasSubstr("mlp"))));
}

TEST_F(WeightsOfAModel, a_tied_table_may_be_stored_by_either_name_or_both) {
  std::vector<FileTensor> tensors = file_tensors();
  tensors.push_back({"lm_head.weight", "F32", {11, 8}, 352});
  write(tensors);
  EXPECT_TRUE(open());
  std::erase_if(tensors, [](const FileTensor& tensor) { return tensor.name == "transformer.wte.weight"; });
  write(tensors);
  EXPECT_TRUE(open());
  std::erase_if(tensors, [](const FileTensor& tensor) { return tensor.name == "lm_head.weight"; });
  write(tensors);
  EXPECT_THAT(refusal(), HasSubstr("wte.weight is missing"));
}

TEST_F(WeightsOfAModel, an_untied_head_must_be_there) {
  write(file_tensors());
  EXPECT_THAT(refusal(small_config(false)), HasSubstr("lm_head.weight is missing (11 x 8)"));
  write(file_tensors(small_config(false)));
  EXPECT_TRUE(open(small_config(false)));
}

TEST_F(WeightsOfAModel, what_could_be_taken_for_no_weights_is_refused) {
  write_text("pytorch_model.bin", "pickle");
  EXPECT_THAT(refusal(), AllOf(HasSubstr("pytorch_model.bin"), HasSubstr("save_pretrained")));
  std::filesystem::remove(folder_.path("pytorch_model.bin"));
  write(file_tensors(), "model-00001-of-00002.safetensors");
  EXPECT_THAT(refusal(), HasSubstr("some of its files are missing"));
  write(file_tensors());
  write_text("model.safetensors.index.json", "{}");
  EXPECT_THAT(refusal(), HasSubstr("holds both"));
}

TEST_F(WeightsOfAModel, the_fingerprint_tells_other_names_and_other_values) {
  std::vector<FileTensor> tensors = file_tensors();
  write(tensors);
  const std::uint64_t before = open()->fingerprint();
  std::string image = image_of(tensors);
  write_image(folder_.path("model.safetensors"), image);
  EXPECT_EQ(open()->fingerprint(), before);
  image.back() = 'x';  // within the last tensor
  write_image(folder_.path("model.safetensors"), image);
  EXPECT_NE(open()->fingerprint(), before);
  std::swap(tensors[2], tensors[3]);
  write(tensors);
  EXPECT_NE(open()->fingerprint(), before);
}

class Sharded : public WeightsOfAModel {
 protected:
  void SetUp() override {
    const std::vector<FileTensor> all = file_tensors();
    const auto middle = all.begin() + 5;
    write({all.begin(), middle}, "a.safetensors");
    write({middle, all.end()}, "b.safetensors");
    for (auto t = all.begin(); t != all.end(); ++t)
      index_["weight_map"][t->name] = t < middle ? "a.safetensors" : "b.safetensors";
  }
  std::string refused_index() {
    write_text("model.safetensors.index.json", index_.dump());
    return refusal<Error>();
  }
  nlohmann::json index_;
};

TEST_F(Sharded, weights_are_found_by_the_index) {
  EXPECT_EQ(refused_index(), "");
  EXPECT_THAT(open()->summary(), HasSubstr("2 files, F32"));
}

TEST_F(Sharded, an_index_that_leads_out_of_its_folder_is_refused) {
  for (const char* name : {"../a.safetensors", "/etc/x.safetensors", "x/../a.safetensors", "a.bin", ""}) {
    index_["weight_map"]["transformer.wte.weight"] = name;
    EXPECT_THAT(refused_index(), HasSubstr("not the name of a safetensors file beside it")) << name;
  }
  index_["weight_map"]["transformer.wte.weight"] = 7;
  EXPECT_THAT(refused_index(), HasSubstr("not the name"));
  index_["weight_map"] = nlohmann::json::array();
  EXPECT_THAT(refused_index(), HasSubstr("no \"weight_map\""));
}

TEST_F(Sharded, an_index_that_does_not_belong_to_its_files_is_refused) {
  index_["weight_map"]["transformer.wte.weight"] = "b.safetensors";
  index_["weight_map"]["extra"] = "a.safetensors";
  index_["weight_map"].erase("transformer.wpe.weight");
  EXPECT_THAT(refused_index(),
              AllOf(HasSubstr("a.safetensors holds transformer.wte.weight, which the index does not"),
                    HasSubstr("extra is not in a.safetensors"),
                    HasSubstr("a.safetensors holds transformer.wpe.weight, which")));
  std::filesystem::remove(folder_.path("b.safetensors"));
  EXPECT_THAT(refused_index(), AllOf(HasSubstr("files that are not there: b.safetensors")));
}

}  // namespace
}  // namespace headrace

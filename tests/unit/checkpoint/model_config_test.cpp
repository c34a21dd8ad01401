#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headrace/errors.h"
#include "headrace/model_folder.h"
#include "src/checkpoint/family_layout.h"
#include "support/safetensors_image.h"
#include "support/temporary_folder.h"

namespace headrace {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class ModelConfigFile : public ::testing::Test {
 protected:
  ModelConfig read(const std::string& text) {
    testing::write_image(folder_.path("config.json"), text);
    return read_model_config(folder_.path());
  }
  template <class Kind = UsageError>
  std::string refusal(const std::string& text) {
    try {
      read(text);
    } catch (const Kind& error) {
      return error.what();
    }
    return "";
  }
  // A sound configuration with one more line.
  static std::string with(const std::string& line) {
    return R"({"model_type": "gpt2", "n_layer": 2, "n_embd": 8, "n_head": 2, "vocab_size": 11, "n_positions": 6, )" +
           line + "}";
  }
  testing::TemporaryFolder folder_;
};

TEST_F(ModelConfigFile, what_is_written_is_read_back) {
  for (const bool tied : {true, false}) {
    const ModelConfig written{.name = "x",
                              .layers = 3,
                              .width = 24,
                              .heads = 4,
                              .vocabulary = 100,
                              .max_positions = 17,
                              .tied_embedding = tied};
    const ModelConfig config = read(model_config_text(written, DType::bf16));
    EXPECT_EQ(config.layers, 3);
    EXPECT_EQ(config.width, 24);
    EXPECT_EQ(config.heads, 4);
    EXPECT_EQ(config.vocabulary, 100);
    EXPECT_EQ(config.max_positions, 17);
    EXPECT_EQ(config.tied_embedding, tied);
    EXPECT_EQ(config.name, folder_.path());
  }
}

TEST_F(ModelConfigFile, end_tokens_are_read_and_written_back) {
  using ::testing::ElementsAre;
  EXPECT_TRUE(read(with(R"("eos_token_id": null)")).end_tokens.empty());
  EXPECT_TRUE(read(with(R"("bos_token_id": 0)")).end_tokens.empty());
  EXPECT_THAT(read(with(R"("eos_token_id": 0)")).end_tokens, ElementsAre(0));
  // What is outside the vocabulary is never drawn.
  EXPECT_THAT(read(with(R"("eos_token_id": [10, 11, -1, 3])")).end_tokens, ElementsAre(10, 3));
  EXPECT_THAT(refusal(with(R"("eos_token_id": "end")")),
              AllOf(HasSubstr("eos_token_id"), HasSubstr("\"end\"")));
  for (const char* ids : {"7", "[7, 2]"}) {
    const ModelConfig config = read(with(fmt::format(R"("eos_token_id": {})", ids)));
    EXPECT_EQ(read(model_config_text(config, DType::f32)).end_tokens, config.end_tokens);
  }
}

TEST_F(ModelConfigFile, what_is_left_out_is_the_published_gpt2) {
  const ModelConfig config = read(R"({"model_type": "gpt2"})");
  EXPECT_EQ(config.layers, 12);
  EXPECT_EQ(config.width, 768);
  EXPECT_EQ(config.vocabulary, 50257);
  EXPECT_TRUE(config.tied_embedding);
}

TEST_F(ModelConfigFile, the_general_names_of_keys_are_read_too) {
  EXPECT_EQ(
      read(R"({"model_type": "gpt2", "num_hidden_layers": 3, "hidden_size": 48, "num_attention_heads": 4})")
          .width,
      48);
}

TEST_F(ModelConfigFile, what_the_native_model_does_not_compute_is_refused_by_its_key) {
  for (const auto& [key, value] :
       std::vector<std::pair<std::string, std::string>>{{"activation_function", "\"relu\""},
                                                        {"n_inner", "33.5"},
                                                        {"layer_norm_epsilon", "-1e-06"},
                                                        {"scale_attn_weights", "false"},
                                                        {"scale_attn_by_inverse_layer_idx", "true"},
                                                        {"reorder_and_upcast_attn", "true"},
                                                        {"add_cross_attention", "true"},
                                                        {"pruned_heads", R"({"0": [1]})"},
                                                        {"quantization_config", R"({"bits": 4})"},
                                                        {"is_encoder_decoder", "true"},
                                                        {"tie_word_embeddings", "\"yes\""}})
    EXPECT_THAT(refusal(with("\"" + key + "\": " + value)),
                AllOf(HasSubstr("config.json: \"" + key + "\" is"), HasSubstr(value.substr(0, 4))))
        << key;
  EXPECT_EQ(
      refusal(with(
          R"("n_inner": 32, "activation_function": "gelu_pytorch_tanh", "layer_norm_epsilon": 0.00001)")),
      "");
}

TEST_F(ModelConfigFile, of_a_llama_what_is_written_is_read_back) {
  ModelConfig written;
  written.family = ModelFamily::llama;
  written.layers = 2, written.width = 48, written.heads = 6, written.key_heads = 2, written.head_width = 16;
  written.vocabulary = 300, written.max_positions = 70, written.mlp_width = 112;
  written.norm_epsilon = 1e-6f, written.rope_theta = 500000.0f, written.tied_embedding = false;
  const ModelConfig config = read(model_config_text(written, DType::bf16));
  EXPECT_EQ(config.family, ModelFamily::llama);
  EXPECT_EQ(config.heads, 6);
  EXPECT_EQ(config.key_heads, 2);
  EXPECT_EQ(config.head_width, 16);
  EXPECT_EQ(config.mlp_width, 112);
  EXPECT_EQ(config.norm_epsilon, 1e-6f);
  EXPECT_EQ(config.rope_theta, 500000.0f);
  EXPECT_FALSE(config.tied_embedding);
}

TEST_F(ModelConfigFile, of_a_llama_positions_are_read_where_either_version_keeps_them) {
  const auto llama = [](const std::string& line) { return R"({"model_type": "llama", )" + line + "}"; };
  EXPECT_EQ(read(llama(R"("rope_theta": 5e5)")).rope_theta, 500000.0f);
  EXPECT_EQ(read(llama(R"("rope_parameters": {"rope_type": "default", "rope_theta": 5e5})")).rope_theta,
            500000.0f);
  EXPECT_EQ(read(llama(R"("rope_scaling": null)")).rope_theta, 10000.0f);
  for (const std::string line : {R"("rope_scaling": {"rope_type": "llama3", "factor": 8.0})",
                                 R"("rope_parameters": {"rope_type": "yarn"})", R"("attention_bias": true)",
                                 R"("hidden_act": "gelu")", R"("rope_theta": 0)"})
    EXPECT_NE(refusal(llama(line)), "") << line;
}

TEST_F(ModelConfigFile, other_families_and_impossible_shapes_are_refused) {
  EXPECT_THAT(refusal("{}"), HasSubstr("\"model_type\" is missing"));
  EXPECT_THAT(refusal(R"({"model_type": "bert"})"), HasSubstr("\"model_type\" is \"bert\""));
  EXPECT_THAT(refusal(R"({"model_type": 7})"), HasSubstr("\"model_type\" is 7"));
  for (const char* value : {"0", "-1", "1.5", "\"12\"", "null", "99999999999"})
    EXPECT_THAT(refusal(std::string(R"({"model_type": "gpt2", "n_layer": )") + value + "}"),
                HasSubstr("\"n_layer\" is " + std::string(value)))
        << value;
  EXPECT_THAT(refusal(R"({"model_type": "gpt2", "n_embd": 10, "n_head": 3})"),
              HasSubstr("not a multiple of 3 heads"));
}

TEST_F(ModelConfigFile, a_file_that_is_not_sound_json_is_refused) {
  EXPECT_THAT(refusal<CorruptData>("{"), HasSubstr("not JSON from byte"));
  EXPECT_THAT(refusal<CorruptData>("[]"), HasSubstr("not a JSON object"));
  EXPECT_THAT(refusal<CorruptData>(with("\"n_layer\": 3")), HasSubstr("\"n_layer\" stands twice"));
  EXPECT_THAT(refusal<CorruptData>(with("\"a\": " + std::string(100'000, '['))), HasSubstr("nested deeper"));
  EXPECT_THAT(refusal<CorruptData>(std::string("{}\0", 3)), HasSubstr("zero byte"));
  EXPECT_THROW(read_model_config(folder_.path("none")), UsageError);
}

}  // namespace
}  // namespace headrace

// Ten fp32 steps of AdamW against PyTorch, from the same weights and tokens
// (tests/python/decoder_reference.py).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/adam_arrays.h"
#include "tests/unit/model/model_harness.h"

namespace headrace::testing {
namespace {

const std::filesystem::path tests_folder = HEADRACE_TESTS_FOLDER;
const std::filesystem::path script = tests_folder / "python" / "decoder_reference.py";
constexpr double tolerance = 1e-4;

// What a command prints; empty when it fails.
std::string output_of(const std::string& command) {
  std::FILE* pipe = ::popen((command + " 2>/dev/null").c_str(), "r");
  if (pipe == nullptr) return "";
  std::string output;
  std::array<char, 4096> part;
  for (std::size_t n; (n = std::fread(part.data(), 1, part.size(), pipe)) > 0;) output.append(part.data(), n);
  return ::pclose(pipe) == 0 ? output : "";
}

nlohmann::json stored_figures() {
  std::ifstream file(tests_folder / "unit" / "model" / "decoder_reference.json");
  return nlohmann::json::parse(file);
}

struct Figures {
  std::vector<double> losses, gradient_norms;
};

double gradient_norm(const HoldingHooks& hooks) {
  double sum = 0;
  for (std::size_t u = 0; u < hooks.units.size(); ++u)
    for (std::size_t p = 0; p < hooks.units[u].layout.offsets.size(); ++p)
      for (std::uint64_t i = 0; i < hooks.units[u].layout.spec.parameters[p].numel(); ++i) {
        const double g = hooks.gradient_at(u, hooks.units[u].layout.offsets[p] + i);
        sum += g * g;
      }
  return std::sqrt(sum);
}

class Optimizer {
 public:
  explicit Optimizer(const HoldingHooks& hooks) {
    for (const HoldingHooks::Unit& unit : hooks.units) {
      exp_avg_.emplace_back(unit.layout.numel);
      exp_avg_sq_.emplace_back(unit.layout.numel);
    }
  }
  void step(HoldingHooks& hooks, std::uint64_t number, float gradient_scale) {
    for (std::size_t u = 0; u < hooks.units.size(); ++u) {
      HoldingHooks::Unit& unit = hooks.units[u];
      for (std::size_t p = 0; p < unit.layout.offsets.size(); ++p) {
        const ParameterSpec& parameter = unit.layout.spec.parameters[p];
        const std::uint64_t at = unit.layout.offsets[p];
        test::AdamArrays block;
        block.master = unit.master.data() + at;
        block.exp_avg = exp_avg_[u].data() + at;
        block.exp_avg_sq = exp_avg_sq_[u].data() + at;
        block.gradient = unit.gradient.data() + at * sizeof(float);
        block.numel = parameter.numel();
        optimizer_update(block, {.learning_rate = 1e-3,
                                 .beta1 = 0.9,
                                 .beta2 = 0.95,
                                 .epsilon = 1e-8,
                                 .weight_decay = parameter.weight_decay ? 0.1 : 0.0,
                                 .step = number,
                                 .gradient_scale = gradient_scale});
      }
    }
    hooks.publish();
  }

 private:
  std::vector<std::vector<float>> exp_avg_, exp_avg_sq_;
};

ModelConfig config_of(const nlohmann::json& shape) {
  ModelConfig config{.name = "reference",
                     .layers = shape.at("layers"),
                     .width = shape.at("width"),
                     .heads = shape.at("heads"),
                     .vocabulary = shape.at("vocabulary"),
                     .max_positions = shape.at("positions"),
                     .tied_embedding = shape.at("tied")};
  if (shape.at("family") == "gpt2") return config;
  config.family = ModelFamily::llama;
  config.mlp_width = shape.at("mlp_width");
  config.norm_epsilon = shape.at("epsilon");
  config.key_heads = shape.at("key_heads");
  config.head_width = shape.at("head_width");
  config.rope_theta = shape.at("theta");
  return config;
}

Figures train(const nlohmann::json& shape, bool recompute, bool fused_head) {
  const ModelConfig config = config_of(shape);
  const ModelOptions options{.dtype = DType::f32,
                             .batch = shape.at("batch"),
                             .sequence = shape.at("sequence"),
                             .recompute = recompute,
                             .fused_head = fused_head};
  ModelRun run(config, options);
  Optimizer optimizer(run.hooks);
  Figures figures;
  for (std::uint64_t step = 0; step < shape.at("losses").size(); ++step) {
    figures.losses.push_back(run.forward_backward(hashed_tokens(step, config, options)));
    const double norm = gradient_norm(run.hooks);
    figures.gradient_norms.push_back(norm);
    optimizer.step(run.hooks, step + 1, static_cast<float>(std::min(1.0, 1.0 / (norm + 1e-6))));
  }
  return figures;
}

void expect_equal(const std::vector<double>& ours, const nlohmann::json& torch, const char* what) {
  ASSERT_EQ(ours.size(), torch.size());
  for (std::size_t i = 0; i < ours.size(); ++i) {
    const double theirs = torch[i];
    EXPECT_NEAR(ours[i], theirs, tolerance * theirs) << what << " of step " << i;
  }
}

void expect_parity(const nlohmann::json& reference) {
  for (const auto& [name, shape] : reference.at("models").items())
    for (const bool recompute : {false, true}) {
      SCOPED_TRACE(name + (recompute ? ", recompute" : ""));
      const Figures ours = train(shape, recompute, !recompute);
      expect_equal(ours.losses, shape.at("losses"), "loss");
      expect_equal(ours.gradient_norms, shape.at("gradient_norms"), "gradient norm");
    }
}

TEST(TorchParity, stored_figures_were_made_by_this_script) {
  const std::string digest = output_of("sha256sum '" + script.string() + "'").substr(0, 64);
  EXPECT_EQ(stored_figures().at("script_sha256"), digest)
      << "make them again: python3 tests/python/decoder_reference.py --write "
         "tests/unit/model/decoder_reference.json";
}

TEST(TorchParity, ten_steps_equal_the_stored_losses_of_pytorch) {
  const nlohmann::json reference = stored_figures();
  ASSERT_THAT(reference.at("models").size(), ::testing::Ge(4u));
  ASSERT_EQ(reference.at("models").at("tied").at("losses").size(), 10u);
  expect_parity(reference);
}

TEST(TorchParity, ten_steps_equal_the_losses_of_pytorch_run_now) {
  const char* named = std::getenv("HEADRACE_TORCH_PYTHON");
  const std::string python = named != nullptr ? named : "python3";
  if (output_of("'" + python + "' -c 'import torch; print(1)'").empty())
    GTEST_SKIP() << "no torch in " << python << "; HEADRACE_TORCH_PYTHON names a Python that has it";
  const std::string printed = output_of("'" + python + "' '" + script.string() + "'");
  ASSERT_FALSE(printed.empty()) << script << " failed";
  expect_parity(nlohmann::json::parse(printed));
}

}  // namespace
}  // namespace headrace::testing

#include "headrace/weight_source.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <unordered_map>

#include "headrace/checkpoint_report.h"
#include "headrace/errors.h"
#include "headrace/files.h"
#include "headrace/model_folder.h"
#include "src/checkpoint/checkpoint_source.h"
#include "src/checkpoint/open_manifest.h"
#include "src/checkpoint/weight_files.h"
#include "src/checkpoint/weight_names.h"

namespace headrace {
namespace {

std::vector<UnitSpec> units_of(const ModelConfig& config) {
  return make_model(config, {.batch = 1, .sequence = 1})->unit_specs();
}

class CheckpointWeights final : public WeightSource {
 public:
  CheckpointWeights(const std::string& path, Manifest manifest, IoEngine& io)
      : facts_(facts_of_weights(path, manifest)),
        budget_("host",
                std::max(checkpoint_memory_bytes, memory_to_read(manifest)) + checkpoint_rebuild_bytes),
        source_(path, std::move(manifest), io, budget_) {
    std::vector<NamedShape> shapes;
    for (const SourceTensor& tensor : source_.tensors()) {
      numbers_.emplace(tensor.name, shapes.size());
      shapes.push_back({tensor.name, tensor.name, tensor.shape});
    }
    if (const auto list = differences(shapes, units_of(facts_.config)); !list.empty())
      throw UsageError(fmt::format("the checkpoint {} holds other parameters than its model has:\n  {}", path,
                                   fmt::join(list, "\n  ")));
  }
  const WeightFacts& facts() const override { return facts_; }
  void read(const ParameterSpec& parameter, std::uint64_t first, std::span<float> out) override {
    source_.read(numbers_.at(parameter.name), first, out);
  }

 private:
  static WeightFacts facts_of_weights(const std::string& path, const Manifest& manifest) {
    return {.path = path,
            .summary = fmt::format("step {} of a run by {}", manifest.step, manifest.written_by),
            .config = parse_model_config(manifest.model, path),
            .dtype = parameter_dtype(manifest.dtype),
            .run = facts_of(manifest, path).state.run};
  }

  WeightFacts facts_;
  MemoryBudget budget_;
  CheckpointSource source_;
  std::unordered_map<std::string, std::size_t> numbers_;  // of the source's tensors
};

class FolderWeights final : public WeightSource {
 public:
  FolderWeights(WeightFacts facts, ModelWeights weights)
      : facts_(std::move(facts)), weights_(std::move(weights)) {}
  const WeightFacts& facts() const override { return facts_; }
  void read(const ParameterSpec& parameter, std::uint64_t first, std::span<float> out) override {
    weights_.read(parameter, first, out);
  }

 private:
  WeightFacts facts_;
  ModelWeights weights_;
};

std::unique_ptr<WeightSource> open_folder(const std::string& path) {
  WeightFacts facts{.path = path, .summary = {}, .config = read_model_config(path), .run = {}};
  std::optional<ModelWeights> weights = ModelWeights::open(path, facts.config, units_of(facts.config));
  if (!weights)
    throw UsageError(fmt::format("{} holds a configuration and no weights: there is no {} in it.", path,
                                 single_file_name));
  facts.summary = weights->summary(), facts.dtype = weights->dtype();
  return std::make_unique<FolderWeights>(std::move(facts), std::move(*weights));
}

}  // namespace

std::unique_ptr<WeightSource> open_weight_source(const std::string& path, IoEngine& io) {
  if (is_checkpoint(path)) return std::make_unique<CheckpointWeights>(path, open_manifest(path), io);
  if (files::file_exists(files::join(path, config_file_name))) return open_folder(path);
  if (!files::folder_exists(path)) throw UsageError(fmt::format("{}: there is no such folder.", path));
  if (!is_named_as_checkpoint(path) && list_checkpoints(path).empty())
    throw UsageError(
        fmt::format("{} holds no weights. Give a checkpoint (a folder like runs/a/step-00001200), the folder "
                    "of a run's checkpoints, or a model's folder (config.json and safetensors files).",
                    path));
  const std::string newest = checkpoint_at(path);
  return std::make_unique<CheckpointWeights>(newest, open_manifest(newest), io);
}

}  // namespace headrace

// Models in the layout of Hugging Face's transformers: a folder of config.json and safetensors files, whole
// or in shards with an index. Weights stream in both directions: nothing is held but headers and one piece.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "headrace/bytes.h"
#include "headrace/dtype.h"
#include "headrace/io_engine.h"
#include "headrace/model.h"
#include "headrace/units.h"

namespace headrace {

// The model that `folder`/config.json describes, named by the folder. UsageError that names the key, where
// the native model cannot compute what it asks for.
ModelConfig read_model_config(const std::string& folder);
// The text of such a config.json, and the model that a text describes; `place` is named in errors.
std::string model_config_text(const ModelConfig& config, DType dtype);
ModelConfig parse_model_config(const std::string& text, const std::string& place);

// The weights of a model folder. Const calls may run at the same time.
class ModelWeights {
 public:
  // None where the folder holds config.json alone. UsageError with all differences in name, shape or type
  // between the files and `units`; CorruptData for damaged files.
  static std::optional<ModelWeights> open(const std::string& folder, const ModelConfig& config,
                                          const std::vector<UnitSpec>& units);
  ModelWeights(ModelWeights&&) noexcept;
  ModelWeights& operator=(ModelWeights&&) noexcept;
  ~ModelWeights();

  // Elements [first, first + out.size()) of a parameter of those units.
  void read(const ParameterSpec& parameter, std::uint64_t first, std::span<float> out) const;
  // Of names, shapes, types, places and the first values of each tensor: tells other files from these.
  std::uint64_t fingerprint() const;
  DType dtype() const;          // the one of all of them; fp32 where they differ
  std::string summary() const;  // "3 files, F16 and F32, 1.20 GiB"

 private:
  struct Impl;
  explicit ModelWeights(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// What an export reads: the parameters of a model, by their native names.
struct SourceTensor {
  std::string name;
  std::vector<std::int64_t> shape;
  DType dtype = DType::f32;  // what it is stored as, unless the options say otherwise
};
class TensorSource {
 public:
  virtual ~TensorSource() = default;
  virtual const std::vector<SourceTensor>& tensors() const = 0;  // in the order of the files
  // Elements [first, first + out.size()) of tensors()[tensor]. Called in order: tensor by tensor, each from
  // its first element to its last, at most `export_piece_numel` at a time.
  virtual void read(std::size_t tensor, std::uint64_t first, std::span<float> out) = 0;
};

inline constexpr std::uint64_t export_piece_numel = std::uint64_t{1} << 20;

struct ExportOptions {
  std::optional<DType> dtype;         // of all weights; none: the source's
  Bytes shard_bytes = 5'000'000'000;  // of a file's data at most; a larger tensor has a file of its own
};
struct ExportedModel {
  std::vector<std::string> files;  // names in the folder
  Bytes bytes = 0;                 // of all files
};
// Writes `folder`, which does not exist yet or is empty: complete or not there, by way of `folder`.partial.
// UsageError with all differences when the source is not the model of `config`; DoesNotFit where the disk is
// too full, before the first byte; Error where a value is too large for the dtype. Nothing is left then.
ExportedModel export_model(const std::string& folder, const ModelConfig& config, TensorSource& source,
                           const ExportOptions& options = {});

// The weights of a checkpoint as such a folder: its masters, in the type of its parameters unless the options
// say otherwise. Reads these alone, 4 MiB at a time. CorruptData where they are damaged.
ExportedModel export_checkpoint(const std::string& checkpoint, const std::string& folder, IoEngine& io,
                                const ExportOptions& options = {});

}  // namespace headrace

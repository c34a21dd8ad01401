// A checkpoint's masters as a stream of tensors, for export_model.
#include <map>

#include "headrace/errors.h"
#include "headrace/log.h"
#include "headrace/memory.h"
#include "headrace/model_folder.h"
#include "src/checkpoint/checkpoint_files.h"
#include "src/checkpoint/open_manifest.h"
#include "src/checkpoint/slice_reader.h"

namespace headrace {
namespace {

DType dtype_of(const std::string& name) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    if (name == name_of(dtype)) return dtype;
  throw CorruptData(
      fmt::format("the checkpoint's parameters are of a type that is not known: {}.", shortened(name)));
}

class CheckpointSource final : public TensorSource {
 public:
  CheckpointSource(const std::string& path, Manifest manifest, IoEngine& io, MemoryBudget& budget)
      : memory_(budget, MemoryTag::staging, SliceReader::memory_bytes(manifest)),
        reader_(path, std::move(manifest), io, memory_.memory(), SliceReader::What::masters_alone,
                {.budget = &budget, .on_damage = [path](const std::string& problem) {
                   log_warning(damage_warning(path, problem));
                 }}) {
    const DType dtype = dtype_of(reader_.manifest().dtype);
    for (const ManifestParameter& one : reader_.manifest().parameters)
      tensors_.push_back({.name = one.name, .shape = one.shape, .dtype = dtype});
  }

  const std::vector<SourceTensor>& tensors() const override { return tensors_; }

  void read(std::size_t tensor, std::uint64_t first, std::span<float> out) override {
    const MasterDType master = reader_.manifest().states.master;
    float* to = out.data();
    reader_.read(static_cast<std::uint32_t>(tensor), first, out.size(),
                 [&](std::uint64_t at, std::uint64_t numel, const StateArrays& states) {
                   read_master(master, states.master, at, numel, to);
                   to += numel;
                 });
  }

 private:
  HostBuffer memory_;
  SliceReader reader_;
  std::vector<SourceTensor> tensors_;
};

}  // namespace

ExportedModel export_checkpoint(const std::string& checkpoint, const std::string& folder, IoEngine& io,
                                const ExportOptions& options) {
  Manifest manifest = open_manifest(checkpoint);
  const ModelConfig config = parse_model_config(manifest.model, checkpoint);
  MemoryBudget budget("host", checkpoint_memory_bytes + checkpoint_rebuild_bytes);
  CheckpointSource source(checkpoint, std::move(manifest), io, budget);
  return export_model(folder, config, source, options);
}

}  // namespace headrace

// A checkpoint's masters as a stream of tensors, of the type of its parameters.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "headrace/memory.h"
#include "headrace/model_folder.h"
#include "src/checkpoint/state_reader.h"

namespace headrace {

class CheckpointSource final : public TensorSource {
 public:
  CheckpointSource(const std::string& path, Manifest manifest, IoEngine& io, MemoryBudget& budget);
  const std::vector<SourceTensor>& tensors() const override { return tensors_; }
  void read(std::size_t tensor, std::uint64_t first, std::span<float> out) override;

 private:
  std::string path_;
  std::vector<std::string> damage_;  // that parity made up for, not told of yet
  std::unique_ptr<StateReader> reader_;
  std::vector<SourceTensor> tensors_;
};

// Of a name in a manifest; CorruptData where there is none such.
DType parameter_dtype(const std::string& name);

}  // namespace headrace

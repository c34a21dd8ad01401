#include "src/checkpoint/checkpoint_source.h"

#include <fmt/ranges.h>

#include "headrace/errors.h"
#include "headrace/log.h"
#include "src/checkpoint/checkpoint_files.h"

namespace headrace {

DType parameter_dtype(const std::string& name) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    if (name == name_of(dtype)) return dtype;
  throw CorruptData(
      fmt::format("the checkpoint's parameters are of a type that is not known: {}.", shortened(name)));
}

CheckpointSource::CheckpointSource(const std::string& path, Manifest manifest, IoEngine& io,
                                   MemoryBudget& budget)
    : path_(path),
      reader_(open_states(path, std::move(manifest), io, budget,
                          {.needed = {},
                           .budget = &budget,
                           .on_damage = [this](const std::string& problem) { damage_.push_back(problem); }},
                          SliceReader::What::masters_alone)) {
  const DType dtype = parameter_dtype(reader_->manifest().dtype);
  for (const ManifestParameter& one : reader_->manifest().parameters)
    tensors_.push_back({.name = one.name, .shape = one.shape, .dtype = dtype});
}

void CheckpointSource::read(std::size_t tensor, std::uint64_t first, std::span<float> out) {
  const MasterDType master = reader_->manifest().states.master;
  if (first == 0)
    reader_->expect(
        {{static_cast<std::uint32_t>(tensor), 0, reader_->manifest().parameters[tensor].numel()}});
  float* to = out.data();
  reader_->read(static_cast<std::uint32_t>(tensor), first, out.size(),
                [&](std::uint64_t at, std::uint64_t numel, const StateArrays& states) {
                  read_master(master, states.master, at, numel, to);
                  to += numel;
                });
  if (damage_.empty()) return;
  log_warning(damage_warning(path_, fmt::format("{}", fmt::join(damage_, "; "))));
  damage_.clear();
}

}  // namespace headrace

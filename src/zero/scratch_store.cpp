#include "src/zero/scratch_store.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "headrace/errors.h"

namespace headrace {
namespace {

std::string_view name_of(ScratchKind kind) {
  constexpr std::string_view names[scratch_kinds] = {"parameters", "gradients", "gradient sums"};
  return names[static_cast<std::size_t>(kind)];
}

Bytes element_bytes(ScratchKind kind, const EngineOptions& options) {
  return kind == ScratchKind::accumulators ? sizeof(float) : size_of(options.dtype);
}

bool holds(ScratchKind kind, const UnitPlan& unit, const ResolvedPlacement& placement,
           const EngineOptions& options) {
  switch (kind) {
    case ScratchKind::parameters:
      return placement.parameters.tier == Tier::nvme && unit.gather_parameters;
    case ScratchKind::gradients:
      return placement.gradients.tier == Tier::nvme;
    case ScratchKind::accumulators:
      return placement.gradients.tier == Tier::nvme && options.accumulation > 1;
  }
  return false;
}

bool exists(const std::string& path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

}  // namespace

std::string scratch_directory(const std::string& swap_directory) {
  return swap_directory.empty() ? "" : (std::filesystem::path(swap_directory) / "scratch").string();
}

Bytes scratch_extent_bytes(Bytes bytes) {
  constexpr Bytes page_bytes = 4096;
  return round_up(bytes, page_bytes);
}

ScratchLayout make_scratch_layout(const std::vector<UnitPlan>& units,
                                  const std::vector<OptimizerBlock>& blocks,
                                  const ResolvedPlacement& placement, const EngineOptions& options) {
  ScratchLayout layout;
  for (std::size_t k = 0; k < scratch_kinds; ++k) {
    const auto kind = static_cast<ScratchKind>(k);
    layout.index[k].assign(blocks.size(), ScratchLayout::none);
    for (std::size_t b = 0; b < blocks.size(); ++b) {
      const OptimizerBlock& block = blocks[b];
      if (!holds(kind, units[block.unit], placement, options)) continue;
      layout.index[k][b] = static_cast<ScratchLayout::Index>(layout.blocks.size());
      const Bytes bytes = block.range.numel * element_bytes(kind, options);
      layout.blocks.push_back(
          {fmt::format("{} of {}[{}:{}]", name_of(kind), units[block.unit].layout.spec.name,
                       block.range.first, block.range.end()),
           bytes});
      const Bytes pages = scratch_extent_bytes(bytes);
      layout.disk_bytes[k] += pages;
      layout.buffer_bytes[k] = std::max(layout.buffer_bytes[k], pages);
    }
  }
  return layout;
}

ScratchStore::ScratchStore(EngineContext& context, std::vector<OptimizerBlock> blocks)
    : context_(context),
      blocks_(std::move(blocks)),
      layout_(make_scratch_layout(context.units, blocks_, context.placement, context.options)) {
  std::uint32_t next = 0;
  for (UnitId u = 0; u < context.units.size(); ++u) {
    first_of_unit_.push_back(next);
    while (next < blocks_.size() && blocks_[next].unit == u) ++next;
  }
  first_of_unit_.push_back(next);
}

ScratchStore::~ScratchStore() {
  store_.reset();
  if (!made_folder_.empty()) ::rmdir(made_folder_.c_str());  // stays when something else is in it
}

void ScratchStore::create() {
  const std::string& parent = context_.options.swap_directory;
  const std::string directory = scratch_directory(parent);
  if (layout_.blocks.empty()) {
    if (!directory.empty() && exists(directory + "/store.json")) SwapStore::remove(directory);
    return;
  }
  if (std::filesystem::create_directory(parent)) made_folder_ = parent;
  store_ = SwapStore::create({.directory = directory,
                              .durability = Durability::none,
                              .layout = R"({"format":1,"engine":"headrace","scratch":true})"},
                             layout_.blocks, *context_.io);
  store_->remove_on_close();
}

std::pair<std::uint32_t, std::uint32_t> ScratchStore::blocks_of(UnitId unit) const {
  return {first_of_unit_[unit], first_of_unit_[unit + 1]};
}

SwapTicket ScratchStore::read(Index index, std::span<std::byte> memory) {
  const std::lock_guard lock(mutex_);
  return store_->read(index, HostLease::borrowed(memory));
}

SwapTicket ScratchStore::write(Index index, std::span<std::byte> memory) {
  const std::lock_guard lock(mutex_);
  return store_->write(index, HostLease::borrowed(memory));
}

}  // namespace headrace

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

// The same store without the lost paths. Blocks need no larger buffers for it: there are as many data pieces,
// or, with no parity left, none.
void leave_out(const std::vector<std::string>& lost_directories, SwapStoreOptions& options) {
  const std::vector<double> rates = std::move(options.path_rates);
  const std::vector<std::string> directories = std::move(options.directories);
  options.path_rates.clear(), options.directories.clear();
  for (std::size_t p = 0; p < directories.size(); ++p) {
    if (std::find(lost_directories.begin(), lost_directories.end(), directories[p]) != lost_directories.end())
      continue;
    options.directories.push_back(directories[p]);
    if (!rates.empty()) options.path_rates.push_back(rates[p]);
  }
  const auto lost = static_cast<std::uint32_t>(directories.size() - options.directories.size());
  options.parity -= std::min(options.parity, lost);
}

bool exists(const std::string& path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

}  // namespace

std::vector<std::string> scratch_directories(const std::vector<std::string>& swap_directories) {
  std::vector<std::string> directories;
  for (const std::string& directory : swap_directories)
    directories.push_back((std::filesystem::path(directory) / "scratch").string());
  return directories;
}

SwapStoreOptions scratch_store_options(const EngineOptions& options) {
  return {.directories = scratch_directories(options.swap_directories),
          .durability = Durability::none,
          .layout = R"({"format":1,"engine":"headrace","scratch":true})",
          .parity = options.swap_parity,
          .path_rates = options.swap_path_rates};
}

Bytes scratch_buffer_bytes(Bytes bytes, const EngineOptions& options) {
  return round_up(bytes, SwapStore::buffer_alignment(options.swap_directories.size(), options.swap_parity));
}

ScratchLayout make_scratch_layout(const std::vector<UnitPlan>& units,
                                  const std::vector<OptimizerBlock>& blocks,
                                  const ResolvedPlacement& placement, const EngineOptions& options) {
  ScratchLayout layout;
  for (std::size_t k = 0; k < scratch_kinds; ++k) {
    const auto kind = static_cast<ScratchKind>(k);
    std::vector<SwapBlock> of_kind;
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
      of_kind.push_back(layout.blocks.back());
      layout.buffer_bytes[k] = std::max(layout.buffer_bytes[k], scratch_buffer_bytes(bytes, options));
    }
    if (of_kind.empty()) continue;
    for (const Bytes bytes : SwapStore::disk_bytes(of_kind, scratch_store_options(options)))
      layout.disk_bytes[k] += bytes;
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
  allocate();
}

ScratchStore::~ScratchStore() {
  store_.reset();
  for (const std::string& folder : made_folders_) ::rmdir(folder.c_str());  // stays when something is in it
}

void ScratchStore::allocate() {
  const Bytes bytes = SwapStore::parity_bytes(layout_.blocks, scratch_store_options(context_.options));
  if (layout_.blocks.empty() || bytes == 0) return;
  parity_ = HostBuffer(context_.host_budget, MemoryTag::staging, bytes);
  parity_pin_ = context_.pin_for_io(parity_.memory());
}

void ScratchStore::create(const std::vector<std::string>& lost_swap_directories) {
  SwapStoreOptions options = scratch_store_options(context_.options);
  leave_out(scratch_directories(lost_swap_directories), options);
  if (layout_.blocks.empty()) {
    std::erase_if(options.directories, [](const std::string& d) { return !exists(d + "/store.json"); });
    if (!options.directories.empty()) SwapStore::remove(options.directories);
    return;
  }
  for (const std::string& directory : options.directories) {
    const std::string parent = std::filesystem::path(directory).parent_path().string();
    std::error_code error;  // making the store in it says what is wrong
    if (std::filesystem::create_directory(parent, error)) made_folders_.push_back(parent);
  }
  options.parity_memory = parity_.memory();
  store_ = SwapStore::create(options, layout_.blocks, *context_.io);
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

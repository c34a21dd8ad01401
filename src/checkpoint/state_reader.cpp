#include "src/checkpoint/state_reader.h"

#include "headrace/errors.h"
#include "headrace/pinned_checkpoints.h"
#include "src/checkpoint/open_manifest.h"
#include "src/checkpoint/pinned_states.h"

namespace headrace {
namespace {

class FileStates final : public StateReader {
 public:
  FileStates(const std::string& path, Manifest manifest, IoEngine& io, MemoryBudget& budget,
             Rebuilding rebuilding, SliceReader::What what)
      : memory_(budget, MemoryTag::staging, SliceReader::memory_bytes(manifest, what)),
        reader_(path, std::move(manifest), io, memory_.memory(), what, std::move(rebuilding)) {}

  const Manifest& manifest() const override { return reader_.manifest(); }
  void expect(std::vector<ParameterRange> ranges) override { reader_.expect(std::move(ranges)); }
  void read(std::uint32_t parameter, std::uint64_t first, std::uint64_t numel, const Visit& visit) override {
    reader_.read(parameter, first, numel, visit);
  }
  std::vector<std::vector<Piece>> pieces_by_rank() const override {
    std::vector<std::vector<Piece>> pieces(manifest().files.size());
    for (const ManifestSlice& slice : manifest().slices)
      if (slice.array == 0) pieces[slice.file].push_back({slice.parameter, slice.first, slice.numel});
    return pieces;
  }

 private:
  HostBuffer memory_;
  SliceReader reader_;
};

}  // namespace

std::unique_ptr<StateReader> open_states(const std::string& path, Manifest manifest, IoEngine& io,
                                         MemoryBudget& budget, Rebuilding rebuilding,
                                         SliceReader::What what) {
  if (manifest.is_pinned()) return std::make_unique<PinnedStates>(path, std::move(manifest), io, budget);
  return std::make_unique<FileStates>(path, std::move(manifest), io, budget, std::move(rebuilding), what);
}

Bytes memory_to_read(const Manifest& manifest) {
  return manifest.is_pinned() ? PinnedStates::memory_bytes(manifest) : SliceReader::memory_bytes(manifest);
}

Bytes bytes_to_load(const std::string& checkpoint) {
  try {
    return memory_to_read(open_manifest(checkpoint));
  } catch (const Error&) {  // it is told where it is loaded
    return 0;
  }
}

}  // namespace headrace

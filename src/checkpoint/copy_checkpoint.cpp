// A checkpoint of files from any other: what is pinned in swap stores becomes portable.
#include <unordered_map>

#include "headrace/checkpoint.h"
#include "headrace/checkpoint_report.h"
#include "headrace/checkpoint_space.h"
#include "headrace/errors.h"
#include "headrace/files.h"
#include "headrace/log.h"
#include "headrace/pinned_checkpoints.h"
#include "src/checkpoint/append_file.h"
#include "src/checkpoint/checkpoint_files.h"
#include "src/checkpoint/folder.h"
#include "src/checkpoint/open_manifest.h"
#include "src/checkpoint/partial_folder.h"
#include "src/checkpoint/shard_file.h"
#include "src/checkpoint/state_reader.h"

namespace headrace {
namespace {

bool is_of_checkpoint(const std::string& name) {
  return name.starts_with(manifest_name) || (name.starts_with("rank-") && name.ends_with(".safetensors"));
}

class Copy {
 public:
  Copy(const std::string& checkpoint, const std::string& folder, IoEngine& io)
      : io_(io),
        budget_("host", ~Bytes{0}),
        reader_(open_states(checkpoint, open_manifest(checkpoint), io, budget_,
                            {.needed = {},
                             .budget = nullptr,
                             .on_damage =
                                 [checkpoint](const std::string& problem) {
                                   log_warning(damage_warning(checkpoint, problem));
                                 }})),
        folder_(folder, is_of_checkpoint),
        manifest_(reader_->manifest()),
        arrays_(stored_arrays(manifest_.states)),
        memory_(budget_, MemoryTag::staging, AppendFile::memory_bytes) {
    for (const ManifestParameter& one : manifest_.parameters)
      parameters_.push_back({.name = one.name, .shape = one.shape});
    manifest_.problem.clear();
    manifest_.parity.reset();
    manifest_.files.clear();
    manifest_.slices.clear();
    manifest_.stores.clear();
    manifest_.pin.clear();
  }

  CopiedCheckpoint run(const std::string& folder) {
    plan();
    require_space(folder);
    Bytes bytes = 0;
    for (const ShardFile& shard : shards_) bytes += shard.bytes;
    for (std::size_t rank = 0; rank < shards_.size(); ++rank) write(rank);
    const std::string text = to_text(manifest_);
    files::prepare_replacement(folder_.path(), manifest_name, std::as_bytes(std::span(text)));
    files::publish_replacement(folder_.path(), manifest_name);
    folder_.publish();
    return {.files = shards_.size() + 1, .bytes = bytes + text.size()};
  }

 private:
  void plan() {
    std::unordered_map<std::string_view, std::uint32_t> index_of;
    for (std::uint32_t p = 0; p < parameters_.size(); ++p) index_of.emplace(parameters_[p].name, p);
    pieces_ = reader_->pieces_by_rank();
    for (std::uint32_t rank = 0; rank < pieces_.size(); ++rank) {
      std::vector<StatePiece> pieces;
      for (const StateReader::Piece& piece : pieces_[rank])
        pieces.push_back({&parameters_[piece.parameter], piece.first, piece.numel});
      shards_.push_back(plan_shard_file(pieces, arrays_, index_of, rank));
    }
  }

  void require_space(const std::string& folder) const {
    Bytes bytes = 0;
    for (const ShardFile& shard : shards_)
      bytes += shard.bytes + shard.slices.size() * slice_description_bytes;
    if (const Bytes free = files::file_system_of(folder_.path()).free_bytes; free < bytes)
      throw DoesNotFit(fmt::format(
          "the copy needs {} in {}, whose file system has {}. Free some space, or give a folder on a larger "
          "disk.",
          format_bytes(bytes), folder, format_bytes(free)));
  }

  // As a save writes it: piece by piece, array by array.
  void write(std::size_t rank) {
    ShardFile& shard = shards_[rank];
    const std::string name = shard_file_name(static_cast<int>(rank), static_cast<int>(shards_.size()));
    AppendFile file(io_, files::join(folder_.path(), name), shard.bytes, memory_.memory());
    const auto header = std::as_bytes(std::span(shard.header));
    file.append(header);
    reader_->expect(pieces_[rank]);
    std::size_t next = 0;
    for (const StateReader::Piece& piece : pieces_[rank])
      reader_->read(piece.parameter, piece.first, piece.numel,
                    [&](std::uint64_t at, std::uint64_t numel, const StateArrays& states) {
                      for (const StoredArray& array : arrays_) {
                        const auto bytes = stored_bytes(array, states, at, numel);
                        shard.slices[next++].crc32c = crc32c(bytes);
                        file.append(bytes);
                      }
                    });
    file.finish();
    manifest_.files.push_back({.name = name,
                               .bytes = shard.bytes,
                               .header_bytes = shard.header.size(),
                               .header_crc32c = crc32c(header)});
    manifest_.slices.insert(manifest_.slices.end(), shard.slices.begin(), shard.slices.end());
  }

  IoEngine& io_;
  MemoryBudget budget_;
  std::unique_ptr<StateReader> reader_;
  PartialFolder folder_;
  Manifest manifest_;
  std::vector<ParameterSpec> parameters_;
  const std::vector<StoredArray> arrays_;
  HostBuffer memory_;
  std::vector<std::vector<StateReader::Piece>> pieces_;  // by rank
  std::vector<ShardFile> shards_;
};

}  // namespace

CopiedCheckpoint copy_checkpoint(const std::string& checkpoint, const std::string& folder, IoEngine& io) {
  // By that name a job would take it for its own, and remove it.
  const Fd beside = is_named_as_checkpoint(folder)
                        ? lock_beside(folder, "give a folder of another name, or elsewhere")
                        : Fd{};
  return Copy(checkpoint, folder, io).run(folder);
}

}  // namespace headrace

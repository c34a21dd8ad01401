// Brings back the files of a checkpoint that are missing or damaged: looks at every stripe, then writes each
// damaged file anew beside the old one, and takes its place when it is whole and flushed.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>

#include "headrace/checkpoint_report.h"
#include "headrace/errors.h"
#include "headrace/files.h"
#include "headrace/memory.h"
#include "headrace/swap_paths.h"
#include "src/checkpoint/checkpoint_files.h"
#include "src/checkpoint/checkpoint_stripes.h"
#include "src/checkpoint/folder.h"
#include "src/checkpoint/open_manifest.h"
#include "src/checkpoint/whole_file.h"

namespace headrace {
namespace {

class Repair {
 public:
  Repair(const std::string& path, IoEngine& io, const InspectControl& control)
      : path_(path),
        locks_(lock_for_repair(path)),
        control_(control),
        manifest_(open_manifest(path)),
        states_(manifest_.file_count()) {
    if (manifest_.is_pinned())
      throw UsageError(fmt::format(
          "{} is pinned in swap stores, and has no files: `{}` repairs them, where they have parity.", path,
          repair_command({}, manifest_.stores.front().directories)));
    if (!manifest_.parity)
      throw Error(
          fmt::format("{} was saved without --checkpoint-parity: there is nothing to rebuild its files from. "
                      "Bring them back from a copy, or load another checkpoint.",
                      path));
    memory_ = HostBuffer(budget_, MemoryTag::staging, CheckpointStripes::memory_bytes(manifest_));
    stripes_.emplace(path, manifest_, io, memory_.memory());
  }

  CheckpointRepair run() {
    remove_leftovers();
    repair_manifests();
    for (const FileProblem& problem : look_at_files(path_, manifest_)) states_[problem.file].damaged = true;
    look_at_stripes();
    if (!report_.stopped) rewrite();
    return std::move(report_);
  }

 private:
  struct FileState {
    bool damaged = false, lost = false;  // lost: in a stripe with more damage than parity makes up for
    std::uint64_t stripes = 0;           // damaged ones
    Bytes bytes = 0;                     // in them
    std::unique_ptr<WholeFile> anew;
  };

  // Of a repair that was killed.
  void remove_leftovers() const {
    for (std::uint32_t f = 0; f < manifest_.file_count(); ++f)
      files::remove_file(files::join(path_, manifest_.file(f).name) + std::string(partial_suffix));
    for (const char* name : {manifest_name, manifest_copy_name})
      files::remove_file(files::join(path_, name) + files::replacement_suffix);
  }

  void repair_manifests() {
    const ManifestText first = read_manifest(path_, manifest_name),
                       copy = read_manifest(path_, manifest_copy_name);
    const std::string& good = first.manifest ? first.text : copy.text;
    for (const auto& [name, one] : {std::pair(manifest_name, &first), std::pair(manifest_copy_name, &copy)}) {
      if (one->text == good) continue;
      write_checkpoint_text(path_, name, good);
      report_.files.push_back({.name = name});
    }
  }

  // Whether to go on, after this many bytes more of two passes over all.
  bool go_on(Bytes bytes) {
    done_ += bytes;
    if (control_.progress) control_.progress(done_, total_);
    if (control_.stop_requested) report_.stopped = control_.stop_requested();
    return !report_.stopped;
  }

  Bytes stripe_bytes() const {
    Bytes bytes = 0;
    for (std::uint32_t f = 0; f < states_.size(); ++f) bytes += stripes_->piece(f).size();
    return bytes;
  }

  void look_at_stripes() {
    for (std::uint32_t f = 0; f < states_.size(); ++f) total_ += manifest_.file(f).bytes;
    std::uint64_t lost_stripes = 0;
    for (std::uint64_t s = 0; s < stripes_->count(); ++s) {
      const std::vector<CheckpointStripes::Bad>& bad = stripes_->read(s);
      const bool lost = bad.size() > manifest_.parity_rows();
      for (const CheckpointStripes::Bad& one : bad) {
        FileState& state = states_[one.file];
        state.damaged = true;
        state.lost = state.lost || lost;
        ++state.stripes;
        state.bytes += stripes_->piece(one.file).size();
      }
      lost_stripes += lost ? 1 : 0;
      if (!go_on(stripe_bytes())) return;
    }
    report_.checked_bytes = done_;
    if (lost_stripes == 0) return;
    std::vector<std::string> names;
    for (std::uint32_t f = 0; f < states_.size(); ++f)
      if (states_[f].lost) names.push_back(manifest_.file(f).name);
    report_.problems.push_back(fmt::format(
        "{} cannot be rebuilt: in {} of {} stripes more than {} of the files are damaged. Load another "
        "checkpoint.",
        fmt::join(names, ", "), lost_stripes, stripes_->count(), manifest_.parity_rows()));
  }

  void rewrite() {
    bool any = false;
    for (std::uint32_t f = 0; f < states_.size(); ++f) {
      if (!states_[f].damaged || states_[f].lost) continue;
      const ManifestFile& file = manifest_.file(f);
      states_[f].anew = std::make_unique<WholeFile>(path_, file.name, file.bytes);
      any = true;
    }
    if (!any) return;
    total_ *= 2;
    for (std::uint64_t s = 0; s < stripes_->count(); ++s) {
      append_stripe(s);
      if (!go_on(stripe_bytes())) return;
    }
    for (std::uint32_t f = 0; f < states_.size(); ++f) {
      if (states_[f].anew == nullptr) continue;
      states_[f].anew->publish();
      report_.files.push_back({.name = manifest_.file(f).name,
                               .stripes = manifest_.parity->crc32c[f].size(),
                               .rebuilt = states_[f].stripes,
                               .bytes_rebuilt = states_[f].bytes});
    }
  }

  // Every piece that is appended is as it was written.
  void append_stripe(std::uint64_t stripe) {
    const std::vector<CheckpointStripes::Bad>& bad = stripes_->read(stripe);
    const bool wanted = std::ranges::any_of(
        bad, [&](const CheckpointStripes::Bad& one) { return states_[one.file].anew != nullptr; });
    if (wanted && !stripes_->rebuild())
      throw CorruptData(
          fmt::format("{} was damaged further while it was being repaired. Start the repair again.", path_));
    for (std::uint32_t f = 0; f < states_.size(); ++f)
      if (states_[f].anew != nullptr) states_[f].anew->append(stripes_->piece(f));
  }

  const std::string path_;
  const RepairLocks locks_;
  const InspectControl& control_;
  const Manifest manifest_;
  MemoryBudget budget_{"host", checkpoint_rebuild_bytes};
  HostBuffer memory_;
  std::optional<CheckpointStripes> stripes_;
  std::vector<FileState> states_;
  CheckpointRepair report_;
  Bytes done_ = 0, total_ = 0;
};

}  // namespace

CheckpointRepair repair_checkpoint(const std::string& path, IoEngine& engine, const InspectControl& control) {
  return Repair(path, engine, control).run();
}

}  // namespace headrace

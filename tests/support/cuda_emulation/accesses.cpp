#include "support/cuda_emulation/accesses.h"

#include <fmt/format.h>

#include <algorithm>

#include "support/cuda_emulation/runtime.h"
#include "support/cuda_emulation/work_log.h"

namespace cuda_emulation {
namespace {

[[noreturn]] void report(const MemoryRange& range, std::size_t granule, const char* verb,
                         const Moment& moment, const Shadow::Conflict& conflict) {
  const std::uintptr_t start = range.alias / granule_bytes * granule_bytes + granule * granule_bytes;
  const std::size_t offset = start > range.alias ? start - range.alias : 0;
  violation(fmt::format("\"{}\" of {} {} {}, which {} has {}: no event or wait orders the two", moment.name,
                        actor_name(moment.actor), verb,
                        describe(range, offset, std::min(granule_bytes, range.bytes - offset)),
                        last_work_of(conflict.actor), conflict.written ? "written" : "read"));
}

const char* verb_of(bool write) {
  return write ? "writes" : "reads";
}

}  // namespace

void refuse_freed(std::uintptr_t address) {
  if (const MemoryRange* range = freed_range_of(address))
    violation(fmt::format("\"{}\": use after free of device allocation {}", running_work(), range->serial));
}

void note_freeing(const MemoryRange& range) {
  const Moment& moment = host_moment();
  for (const std::size_t granule : range.shadow.touched())
    if (const auto conflict = range.shadow.access(granule, true, moment))
      report(range, granule, "frees", moment, *conflict);
}

std::string describe(const MemoryRange& range, std::size_t offset, std::size_t bytes) {
  return fmt::format("{} {}, bytes {} to {} of {}",
                     range.device ? "device allocation" : "registered host memory", range.serial, offset,
                     offset + bytes, range.bytes);
}

Accesses::Touched* Accesses::find(std::uintptr_t alias, std::size_t bytes) {
  const MemoryRange* range = range_of_alias(alias);
  if (range == nullptr) {
    if (const MemoryRange* untranslated = range_of(alias); untranslated != nullptr && untranslated->device)
      violation(fmt::format("\"{}\" uses a device address that it was not given as an argument ({})",
                            running_work(), describe(*untranslated, alias - untranslated->base, bytes)));
    if (const MemoryRange* near = range_near_alias(alias); near != nullptr)
      violation(fmt::format("\"{}\" touches {} bytes at {:+} of {}", running_work(), bytes,
                            static_cast<std::ptrdiff_t>(alias - near->alias),
                            describe(*near, 0, near->bytes)));
    refuse_freed(alias);
    const std::uintptr_t page = alias / page_bytes;
    if (!any_range_in(page * page_bytes, (page + 1) * page_bytes)) place_of_no_concern(alias) = page;
    return nullptr;
  }
  for (Touched& each : touched_)
    if (each.range == range) return &each;
  const std::size_t words = range->shadow.granules() / 64 + 1;
  touched_.push_back({range, std::vector<std::uint64_t>(words), std::vector<std::uint64_t>(words), {}});
  return &touched_.back();
}

void Accesses::note(std::uintptr_t alias, std::size_t bytes, bool write) {
  if (bytes == 0) return;
  if (last_ == nullptr || !last_->range->alias_holds(alias)) {
    if (place_of_no_concern(alias) == alias / page_bytes) return;
    Touched* const found = find(alias, bytes);
    if (found == nullptr) return;
    last_ = found;
  }
  const MemoryRange& range = *last_->range;
  if (alias - range.alias + bytes > range.bytes)
    violation(fmt::format("\"{}\" {} {} bytes at {} of {}", running_work(), write ? "writes" : "reads", bytes,
                          alias - range.alias, describe(range, 0, range.bytes)));
  const std::size_t first = range.granule_of(alias), last = range.granule_of(alias + bytes - 1);
  for (std::size_t granule = first; granule <= last; ++granule) {
    const std::size_t word = granule / 64;
    const std::uint64_t bit = std::uint64_t{1} << granule % 64;
    if ((last_->read[word] | last_->written[word]) == 0)
      last_->words.push_back(static_cast<std::uint32_t>(word));
    (write ? last_->written : last_->read)[word] |= bit;
  }
}

void Accesses::finish(const Moment& moment) {
  for (Touched& each : touched_) {
    if (!each.words.empty() && each.range->shadow.released())
      violation(fmt::format("\"{}\" uses {}, which is freed meanwhile", moment.name,
                            describe(*each.range, 0, each.range->bytes)));
    for (const std::uint32_t word : each.words) {
      for (const bool write : {false, true}) {
        std::uint64_t bits = (write ? each.written : each.read)[word];
        for (; bits != 0; bits &= bits - 1) {
          const std::size_t granule = word * 64ul + static_cast<std::size_t>(__builtin_ctzll(bits));
          if (const auto conflict = each.range->shadow.access(granule, write, moment))
            report(*each.range, granule, verb_of(write), moment, *conflict);
        }
        (write ? each.written : each.read)[word] = 0;
      }
    }
    each.words.clear();
  }
  if (touched_.size() > 16) touched_.clear();
  last_ = nullptr;
  pages_of_no_concern_.fill(0);
}

void note_host_access(std::uintptr_t address, std::size_t bytes, bool write) {
  const MemoryRange* range = range_of(address);
  if (range == nullptr || bytes == 0) return;
  if (range->device)
    violation(fmt::format("host code touches {}", describe(*range, address - range->base, bytes)));
  const Moment& moment = host_moment();
  const std::size_t last = range->granule_of(std::min(address + bytes, range->base + range->bytes) - 1);
  for (std::size_t granule = range->granule_of(address); granule <= last; ++granule)
    if (const auto conflict = range->shadow.access(granule, write, moment))
      report(*range, granule, verb_of(write), moment, *conflict);
}

}  // namespace cuda_emulation

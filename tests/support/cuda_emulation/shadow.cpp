#include "support/cuda_emulation/shadow.h"

#include <sys/mman.h>

#include "support/cuda_emulation/runtime.h"

namespace cuda_emulation {

// Untouched granules cost nothing: a mapping is zero.
Shadow::Shadow(std::size_t bytes)
    : count_(bytes / granule_bytes + 2),
      granules_(static_cast<Granule*>(::mmap(nullptr, count_ * sizeof(Granule), PROT_READ | PROT_WRITE,
                                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0))) {
  if (granules_ == MAP_FAILED) violation("no memory for the shadow of a range");
}

void Shadow::release() {
  if (!released_.exchange(true)) ::munmap(granules_, count_ * sizeof(Granule));
}

std::vector<std::size_t> Shadow::touched() const {
  constexpr std::size_t page_bytes = 4096, granules_a_page = page_bytes / sizeof(Granule);
  static_assert(page_bytes % sizeof(Granule) == 0);
  std::vector<unsigned char> resident((count_ + granules_a_page - 1) / granules_a_page);
  if (::mincore(granules_, count_ * sizeof(Granule), resident.data()) != 0)
    violation("cannot ask which pages of a shadow are in use");
  std::vector<std::size_t> found;
  for (std::size_t page = 0; page < resident.size(); ++page)
    for (std::size_t i = 0; (resident[page] & 1u) != 0 && i < granules_a_page; ++i)
      if (const std::size_t granule = page * granules_a_page + i; granule < count_) found.push_back(granule);
  return found;
}

// The access is noted before the others are looked at, so that of two concurrent ones at least one sees the
// other.
std::optional<Shadow::Conflict> Shadow::access(std::size_t granule, bool write, const Moment& moment) {
  Granule& at = granules_[granule];
  (write ? at.written : at.read)[moment.actor].store(moment.at, std::memory_order_seq_cst);
  for (Actor other = 0; other < actor_count; ++other) {
    if (other == moment.actor) continue;
    if (!moment.before.covers(other, at.written[other].load(std::memory_order_seq_cst)))
      return Conflict{other, true};
    if (write && !moment.before.covers(other, at.read[other].load(std::memory_order_seq_cst)))
      return Conflict{other, false};
  }
  return std::nullopt;
}

}  // namespace cuda_emulation

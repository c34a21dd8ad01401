#include <algorithm>
#include <numeric>

#include "headrace/errors.h"
#include "headrace/memory.h"

namespace headrace {

std::string_view name_of(MemoryTag tag) {
  switch (tag) {
    case MemoryTag::parameters:
      return "parameters";
    case MemoryTag::gradients:
      return "gradients";
    case MemoryTag::gradient_accumulators:
      return "gradient_accumulators";
    case MemoryTag::optimizer:
      return "optimizer";
    case MemoryTag::activations:
      return "activations";
    case MemoryTag::communication_buckets:
      return "communication_buckets";
    case MemoryTag::prefetch:
      return "prefetch";
    case MemoryTag::staging:
      return "staging";
    case MemoryTag::workspace:
      return "workspace";
    case MemoryTag::count_:
      break;
  }
  return "?";
}

Bytes TagBytes::total() const {
  return std::accumulate(bytes.begin(), bytes.end(), Bytes{0});
}

MemoryBudget::MemoryBudget(std::string tier, Bytes limit) : tier_(std::move(tier)), limit_(limit) {}

void MemoryBudget::charge(MemoryTag tag, Bytes bytes) {
  {
    const std::lock_guard lock(mutex_);
    const Bytes used = current_.total();
    if (bytes <= limit_ && used <= limit_ - bytes) {
      current_[tag] += bytes;
      peak_[tag] = std::max(peak_[tag], current_[tag]);
      peak_total_ = std::max(peak_total_, used + bytes);
      return;
    }
  }
  throw DoesNotFit(
      fmt::format("{} memory is exhausted: {} more for {} do not fit under the limit of {}. In use:\n{}",
                  tier_, format_bytes(bytes), name_of(tag), format_bytes(limit_), ledger()));
}

void MemoryBudget::refund(MemoryTag tag, Bytes bytes) noexcept {
  const std::lock_guard lock(mutex_);
  current_[tag] -= std::min(bytes, current_[tag]);
}

TagBytes MemoryBudget::current() const {
  const std::lock_guard lock(mutex_);
  return current_;
}

TagBytes MemoryBudget::peak() const {
  const std::lock_guard lock(mutex_);
  return peak_;
}

Bytes MemoryBudget::peak_total() const {
  const std::lock_guard lock(mutex_);
  return peak_total_;
}

std::string MemoryBudget::ledger() const {
  const std::lock_guard lock(mutex_);
  std::string text;
  for (std::size_t t = 0; t < memory_tag_count; ++t) {
    const auto tag = static_cast<MemoryTag>(t);
    if (peak_[tag] == 0) continue;
    text += fmt::format("  {:<24}{:>12}   (peak {})\n", name_of(tag), format_bytes(current_[tag]),
                        format_bytes(peak_[tag]));
  }
  text += fmt::format("  {:<24}{:>12}   (limit {})\n", "total", format_bytes(current_.total()),
                      format_bytes(limit_));
  return text;
}

}  // namespace headrace

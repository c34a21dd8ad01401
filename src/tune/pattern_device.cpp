#include "src/tune/pattern_device.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "headrace/errors.h"

namespace headrace::tune {
namespace {

constexpr Bytes piece_bytes = 256 << 10;  // stays in a core's cache: the copy costs one side of the memory

template <class Copy>
void in_pieces(Bytes bytes, const Copy& copy) {
  for (Bytes at = 0; at < bytes; at += piece_bytes) copy(at, std::min(piece_bytes, bytes - at));
}

}  // namespace

PatternDevice::PatternDevice(Device& lanes, Bytes capacity_bytes)
    : lanes_(lanes), info_(lanes.info()), pattern_(piece_bytes) {
  info_.name = "pattern";
  info_.memory_capacity_bytes = capacity_bytes;
  info_.host_addressable = false;
  for (std::size_t i = 0; i < pattern_.size(); i += sizeof(pattern_bf16))
    std::memcpy(pattern_.data() + i, &pattern_bf16, sizeof(pattern_bf16));
  for (std::vector<std::byte>& lane : dropped_) lane.resize(piece_bytes);
  void* address =
      ::mmap(nullptr, capacity_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED)
    detail::throw_errno(__FILE__, __LINE__,
                        fmt::format("reserve {} of addresses", format_bytes(capacity_bytes)), errno);
  arena_ = static_cast<std::byte*>(address);
}

PatternDevice::~PatternDevice() {
  ::munmap(arena_, info_.memory_capacity_bytes);
}

bool PatternDevice::holds(const void* address) const {
  const auto at = reinterpret_cast<std::uintptr_t>(address), first = reinterpret_cast<std::uintptr_t>(arena_);
  return at >= first && at - first < info_.memory_capacity_bytes;
}

void PatternDevice::copy(Lane lane, void* destination, const void* source, Bytes bytes) {
  const bool to_device = holds(destination), from_device = holds(source);
  HEADRACE_CHECK(to_device || from_device, "a copy of {} bytes within host memory", bytes);
  if (to_device && from_device) return;
  if (from_device)
    lanes_.enqueue(lane, "download a pattern", [this, to = static_cast<std::byte*>(destination), bytes] {
      in_pieces(bytes, [&](Bytes at, Bytes part) { std::memcpy(to + at, pattern_.data(), part); });
    });
  else
    lanes_.enqueue(
        lane, "upload and drop",
        [out = dropped_[static_cast<std::size_t>(lane)].data(), from = static_cast<const std::byte*>(source),
         bytes] { in_pieces(bytes, [&](Bytes at, Bytes part) { std::memcpy(out, from + at, part); }); });
}

void PatternDevice::fill_zero(Lane lane, void* destination, Bytes bytes) {
  if (!holds(destination)) lanes_.fill_zero(lane, destination, bytes);
}

void PatternDevice::enqueue(Lane lane, const char* name, std::function<void()> work) {
  lanes_.enqueue(lane, name, std::move(work));
}

void PatternKernels::update(Lane, const UpdateSpan& span, const OptimizerArguments&) {
  HEADRACE_CHECK(false, "an update of {} elements on a device without memory", span.numel);
}

}  // namespace headrace::tune

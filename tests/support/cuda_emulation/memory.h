// Device allocations and registered host ranges.
//
// A device pointer is an address that nobody may touch: host code that does so faults. The bytes lie
// elsewhere (the alias), between pages that nobody may touch either, and kernels are given alias addresses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "support/cuda_emulation/shadow.h"

namespace cuda_emulation {

struct MemoryRange {
  std::uintptr_t base = 0;   // as the program knows it
  std::uintptr_t alias = 0;  // where kernels and copies touch it; the same for host memory
  std::size_t bytes = 0;
  bool device = false;
  std::uint64_t serial = 0;
  mutable Shadow shadow;

  MemoryRange(std::uintptr_t base_in, std::uintptr_t alias_in, std::size_t bytes_in, bool device_in);
  bool holds(std::uintptr_t address) const { return address >= base && address - base < bytes; }
  bool alias_holds(std::uintptr_t address) const { return address >= alias && address - alias < bytes; }
  std::size_t granule_of(std::uintptr_t alias_address) const {
    return (alias_address - alias / granule_bytes * granule_bytes) / granule_bytes;
  }
};

// The base of a new allocation, 256-byte aligned, whose end is as near to the forbidden page behind it as
// that allows; null when the emulated device has no room left.
void* allocate_device(std::size_t bytes);
// False when there is no such allocation (or, for host ranges, none that starts there).
bool free_device(void* base);
// False when it overlaps a registered range.
bool register_host(void* base, std::size_t bytes);
bool unregister_host(void* base);
std::size_t device_bytes_in_use();

// Safe from any thread, without locks; a range found stays valid until it is freed.
const MemoryRange* range_of(std::uintptr_t address);              // by the program's address
const MemoryRange* range_of_alias(std::uintptr_t alias_address);  // by the alias
// The device allocation that held the address, by either name, before it was freed.
const MemoryRange* freed_range_of(std::uintptr_t address);
bool any_range_in(std::uintptr_t alias_first, std::uintptr_t alias_end);
// The device allocation on whose pages, or on the forbidden ones around them, the address lies.
const MemoryRange* range_near_alias(std::uintptr_t alias_address);

}  // namespace cuda_emulation

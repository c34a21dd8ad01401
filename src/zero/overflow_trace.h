// Which element of a rank's own gradient was not finite first, before it was summed with the other ranks'.
// Kept only where the answer may be needed: while the dynamic loss scale sits at its minimum, so that the
// next overflow ends the run. Costs one pass over each gradient then, and nothing otherwise.
#pragma once

#include <compare>

#include "src/zero/context.h"

namespace headrace {

// An element of a unit's flat vector, in the order of the model. Travels between ranks as it is.
struct GradientPlace {
  static constexpr std::uint64_t nowhere = ~std::uint64_t{0};
  std::uint64_t unit = nowhere, element = nowhere;
  bool found() const { return unit != nowhere; }
  auto operator<=>(const GradientPlace&) const = default;
};

// Bytes of one of its two arrays, on the device and on the host: 0 for runs that cannot need it.
Bytes overflow_trace_bytes(std::size_t units, const EngineOptions& options);

class OverflowTrace {
 public:
  explicit OverflowTrace(EngineContext& context);

  // Lanes idle, before the first gradient of a step.
  void arm(bool armed);
  // Enqueues on the communicate lane, behind what made the gradient.
  void look_at(UnitId unit, const std::byte* gradient);
  // Of all gradients since it was armed. Blocks.
  GradientPlace first();

 private:
  std::span<std::uint64_t> host_first() const;

  EngineContext& context_;
  bool armed_ = false;
  std::uint64_t* device_first_ = nullptr;  // one a unit: the smallest so far
  HostBuffer host_;
  Pin host_pin_;
};

}  // namespace headrace

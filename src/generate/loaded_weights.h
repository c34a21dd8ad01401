// All weights of a model in device memory for as long as this lives.
#pragma once

#include <functional>
#include <vector>

#include "headrace/device.h"
#include "headrace/memory.h"
#include "headrace/units.h"
#include "headrace/weight_source.h"

namespace headrace {

class LoadedWeights final : public ModuleHooks {
 public:
  // Reads them in pieces; false of `go_on` ends that early, and whole() says so.
  LoadedWeights(WeightSource& source, const std::vector<UnitSpec>& units, DType dtype, Device& device,
                DeviceMemory& memory, const std::function<bool()>& go_on);
  static Bytes bytes_of(const std::vector<UnitSpec>& units, DType dtype);

  bool whole() const { return whole_; }
  const std::vector<UnitLayout>& layouts() const { return layouts_; }  // in the order of `units`, as ids are

  std::byte* acquire(UnitId unit) override { return units_.at(unit); }
  void release(UnitId) override {}
  std::byte* gradient_buffer(UnitId unit) override;
  void gradients_ready(UnitId) override {}

 private:
  bool load(WeightSource& source, const ParameterSpec& parameter, std::byte* to, DType dtype, Device& device,
            const std::function<bool()>& go_on);

  std::vector<UnitLayout> layouts_;
  std::vector<std::byte*> units_;
  std::vector<float> high_;
  std::vector<std::byte> low_;
  bool whole_ = true;
};

}  // namespace headrace

// DeviceKernels of the CPU device: the kernels of optimizer_update.h over host memory, in lane order, split
// over the CPU pool.
#include <algorithm>
#include <atomic>
#include <memory>
#include <vector>

#include "headrace/cpu_pool.h"
#include "headrace/finite.h"
#include "headrace/kernels.h"

namespace headrace {
namespace {

// Elements that one thread takes at a time. A multiple of the norm's chunk, so that no partial is split.
constexpr std::uint64_t grain_numel = 16 * norm_chunk_numel;

const void* element(const void* start, std::uint64_t index, DType dtype) {
  return static_cast<const std::byte*>(start) + index * size_of(dtype);
}
void* element(void* start, std::uint64_t index, DType dtype) {
  return static_cast<std::byte*>(start) + index * size_of(dtype);
}

class CpuKernels final : public DeviceKernels {
 public:
  explicit CpuKernels(Device& device) : device_(device) {}

  void sum_slices(Lane lane, std::span<const void* const> slices, DType dtype, std::uint64_t numel,
                  float* sum, bool accumulate) override {
    std::vector<const void*> starts(slices.begin(), slices.end());
    device_.enqueue(lane, "sum_slices", [=, starts = std::move(starts)] {
      parallel_ranges(numel, grain_numel, [&](std::uint64_t begin, std::uint64_t end) {
        std::vector<const void*> at;
        at.reserve(starts.size());
        for (const void* start : starts) at.push_back(element(start, begin, dtype));
        headrace::sum_slices(at, dtype, end - begin, sum + begin, accumulate);
      });
    });
  }

  void round_and_norm(Lane lane, const float* sum, void* rounded, DType dtype, std::uint64_t numel,
                      double* partials) override {
    device_.enqueue(lane, "round_and_norm", [=] {
      parallel_ranges(numel, grain_numel, [&](std::uint64_t begin, std::uint64_t end) {
        headrace::round_and_norm(sum + begin, element(rounded, begin, dtype), dtype, end - begin,
                                 partials + begin / norm_chunk_numel);
      });
    });
  }

  void update(Lane lane, const UpdateSpan& span, const OptimizerArguments& arguments) override {
    require_meaning(span, arguments);  // the caller's mistake, not the lane's
    constants_of(arguments);
    device_.enqueue(lane, "update", [=] { optimizer_update_parallel(span, arguments); });
  }

  void round_to(Lane lane, const float* high, void* low, DType dtype, std::uint64_t numel) override {
    device_.enqueue(lane, "round_to", [=] {
      parallel_ranges(numel, grain_numel, [&](std::uint64_t begin, std::uint64_t end) {
        headrace::round_to(high + begin, element(low, begin, dtype), dtype, end - begin);
      });
    });
  }

  void first_non_finite(Lane lane, const void* values, DType dtype, std::uint64_t numel,
                        std::uint64_t* first) override {
    device_.enqueue(lane, "first_non_finite", [=] {
      std::atomic<std::uint64_t> found{*first};
      parallel_ranges(numel, grain_numel, [&](std::uint64_t begin, std::uint64_t end) {
        const std::uint64_t here =
            headrace::first_non_finite(element(values, begin, dtype), dtype, end - begin);
        if (here == all_finite) return;
        for (std::uint64_t before = found; begin + here < before;)
          if (found.compare_exchange_weak(before, begin + here)) break;
      });
      *first = found;
    });
  }

 private:
  Device& device_;
};

}  // namespace

std::unique_ptr<DeviceKernels> make_cpu_kernels(Device& device) {
  return std::make_unique<CpuKernels>(device);
}

}  // namespace headrace

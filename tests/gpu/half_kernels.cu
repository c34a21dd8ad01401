#include "tests/gpu/half_kernels.h"

#include "gpu/each_element.cuh"

namespace headrace::test {
namespace {

template <class From, class To>
struct Convert {
  static constexpr int vector_numel = vector_numel_of<From, To>;
  const From* from;
  To* to;

  template <int n>
  __device__ void run(std::int64_t i) const {
    store<n>(to + i, load<n>(from + i));
  }
  template <class Visit>
  void pointers(Visit visit) {
    visit(from), visit(to);
  }
};

}  // namespace

void halves_of(KernelQueue& queue, const float* x, std::uint16_t* halves, std::int64_t numel) {
  for_each_element(queue, "halves", Convert<float, __half>{x, reinterpret_cast<__half*>(halves)}, numel);
}

void floats_of(KernelQueue& queue, const std::uint16_t* halves, float* x, std::int64_t numel) {
  for_each_element(queue, "floats", Convert<__half, float>{reinterpret_cast<const __half*>(halves), x},
                   numel);
}

}  // namespace headrace::test

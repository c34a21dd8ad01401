// Passes in which every element stands for itself. Such a pass is a struct, its pointers and factors, with
//   static constexpr int vector_numel      elements of one vector: vector_numel_of the types it touches
//   template <int n> void run(std::int64_t i) const      elements i ... i + n - 1
//   template <class Visit> void pointers(Visit visit)    of kernel_language.h
// and runs on whole vectors where all of its pointers are aligned to theirs, one by one elsewhere.
#pragma once

#include "gpu/element.cuh"

namespace headrace {

template <class Pass>
__global__ void __launch_bounds__(256)
    each_element(const __grid_constant__ Pass pass, std::int64_t numel, std::int64_t vectors) {
  constexpr int n = Pass::vector_numel;
  for (std::int64_t v = first_item(); v < vectors; v += item_step()) pass.template run<n>(v * n);
  for (std::int64_t i = vectors * n + first_item(); i < numel; i += item_step()) pass.template run<1>(i);
}

// `aligned`: whether vectors of each array fit loads of their own size.
template <class Pass>
void for_each_element(KernelQueue& queue, const char* name, const Pass& pass, std::int64_t numel, bool aligned) {
  constexpr unsigned threads = 256;
  constexpr int n = Pass::vector_numel;
  const std::int64_t vectors = aligned ? numel / n : 0;
  const LaunchShape shape{.grid = grid_blocks(aligned ? (numel + n - 1) / n : numel, threads),
                          .block = threads};
  launch(queue, name, shape, each_element<Pass>, pass, numel, vectors);
}

template <class Pass>
void for_each_element(KernelQueue& queue, const char* name, Pass pass, std::int64_t numel) {
  bool aligned = true;
  pass.pointers([&](auto& pointer) { aligned = aligned && aligned_for<Pass::vector_numel>(pointer); });
  for_each_element(queue, name, pass, numel, aligned);
}

// The pass that only rounds, or widens.
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

}  // namespace headrace

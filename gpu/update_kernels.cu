#include "gpu/update_kernels.h"

#include "gpu/each_element.cuh"
#include "gpu/update_arrays.cuh"

namespace headrace {
namespace {

// ---- Moments of fp32 or bf16: every element stands for itself

template <class Master, class T, class Gradient>
struct Update {
  static constexpr int vector_numel = 4;
  static constexpr bool stochastic = !std::is_same_v<T, float>;
  UpdateArrays<Master, Gradient> arrays;
  T* moments[most_moments];

  template <int n>
  __device__ void run(std::int64_t i) const {
    const Floats<n> gradients = load<n>(arrays.gradient + i);
    Floats<n> p = load<n>(arrays.master + i), m[most_moments] = {};
    for (int j = 0; j < most_moments; ++j)
      if (j < arrays.moment_count) m[j] = load<n>(moments[j] + i);
    for (int k = 0; k < n; ++k) {
      ElementState s{p[k], {m[0][k], m[1][k], m[2][k]}};
      update_element(arrays.constants, gradients[k], s);
      p[k] = s.p;
      for (int j = 0; j < most_moments; ++j) m[j][k] = s.m[j];
    }
    store_moments<n>(i, m);
    arrays.template store_parameters<n>(i, p);
  }

  template <int n>
  __device__ void store_moments(std::int64_t i, Floats<n> (&m)[most_moments]) const {
    if constexpr (stochastic) {
      for (int k = 0; k < n; ++k) {
        const ElementBits bits = arrays.bits(i + k);
        for (int j = 0; j < most_moments; ++j) m[j][k] = rounded_stochastically(m[j][k], bits.of_moment(j));
      }
    }
    for (int j = 0; j < most_moments; ++j)
      if (j < arrays.moment_count) store<n>(moments[j] + i, m[j]);
  }

  template <class Visit>
  void pointers(Visit visit) {
    arrays.pointers(visit);
    for (int j = 0; j < arrays.moment_count; ++j) visit(moments[j]);
  }

  // Whether vectors of every array fit loads of their own size.
  bool aligned() const {
    bool all = aligned_for<vector_numel>(arrays.master, arrays.gradient) &&
               reinterpret_cast<std::uintptr_t>(arrays.low) % (vector_numel * size_of(arrays.low_dtype)) == 0;
    for (int j = 0; j < arrays.moment_count; ++j) all = all && aligned_for<vector_numel>(moments[j]);
    return all;
  }
};

template <class Master, class T, class Gradient>
void update_elements(KernelQueue& queue, const UpdateSpan& span, const UpdateConstants& constants) {
  Update<Master, T, Gradient> pass{.arrays = UpdateArrays<Master, Gradient>::of(span, constants), .moments = {}};
  for (int j = 0; j < pass.arrays.moment_count; ++j)
    pass.moments[j] = reinterpret_cast<T*>(span.state.moments[static_cast<std::size_t>(j)].values);
  for_each_element(queue, "update", pass, static_cast<std::int64_t>(span.numel), pass.aligned());
}

// ---- Moments of 8 bits: a warp takes a quantisation block, two elements a thread

constexpr int warp_threads = 32;
constexpr std::int64_t block_numel = quantised_block_numel;
constexpr int elements_a_thread = static_cast<int>(block_numel) / warp_threads;

template <class Master, class Gradient>
struct QuantisedUpdate {
  UpdateArrays<Master, Gradient> arrays;
  std::uint8_t* codes[most_moments];
  float* scales[most_moments];
  bool squared[most_moments];

  template <class Visit>
  void pointers(Visit visit) {
    arrays.pointers(visit);
    for (int j = 0; j < arrays.moment_count; ++j) visit(codes[j]), visit(scales[j]);
  }

  __device__ float decoded(int j, std::int64_t i, float scale) const {
    return squared[j] ? decode_squared(codes[j][i], scale) : decode_signed(codes[j][i], scale);
  }

  // Elements first + lane and first + lane + warp_threads of one quantisation block, as far as they are below numel.
  __device__ void run(std::int64_t block, int lane, std::int64_t numel) const {
    const std::int64_t first = block * block_numel + lane;
    ElementState states[elements_a_thread] = {};
    float scale[most_moments] = {};
    for (int j = 0; j < arrays.moment_count; ++j) scale[j] = scales[j][block];
    for (int e = 0; e < elements_a_thread; ++e) {
      const std::int64_t i = first + e * warp_threads;
      if (i >= numel) continue;
      ElementState& s = states[e];
      s.p = to_fp32(arrays.master[i]);
      for (int j = 0; j < arrays.moment_count; ++j) s.m[j] = decoded(j, i, scale[j]);
      update_element(arrays.constants, to_fp32(arrays.gradient[i]), s);
      arrays.template store_parameters<1>(i, {{s.p}});
    }
    for (int j = 0; j < arrays.moment_count; ++j) encode(j, block, lane, numel, states);
  }

  __device__ void encode(int j, std::int64_t block, int lane, std::int64_t numel,
                         const ElementState (&states)[elements_a_thread]) const {
    float kept[elements_a_thread], largest = 0;
    for (int e = 0; e < elements_a_thread; ++e) {
      kept[e] = squared[j] ? sqrtf(states[e].m[j]) : states[e].m[j];
      largest = fmaxf(largest, fabsf(kept[e]));  // leaves out NaN
    }
    for (int distance = warp_threads / 2; distance > 0; distance /= 2)
      largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, distance));
    const float scale = stored_scale(largest, squared[j]), inverse = inverse_scale(scale);
    if (lane == 0) scales[j][block] = scale;
    for (int e = 0; e < elements_a_thread; ++e) {
      const std::int64_t i = block * block_numel + lane + e * warp_threads;
      if (i >= numel) continue;
      const std::uint32_t random = arrays.bits(i).of_moment(j);
      codes[j][i] = squared[j] ? encode_root(kept[e], inverse, random) : encode_signed(kept[e], inverse, random);
    }
  }
};

template <class Pass>
__global__ void __launch_bounds__(256) each_quantised_block(const __grid_constant__ Pass pass, std::int64_t numel) {
  const int lane = static_cast<int>(threadIdx.x) % warp_threads;
  const std::int64_t blocks = (numel + block_numel - 1) / block_numel, warps = item_step() / warp_threads;
  for (std::int64_t block = first_item() / warp_threads; block < blocks; block += warps)
    pass.run(block, lane, numel);
}

template <class Master, class Gradient>
void update_quantised(KernelQueue& queue, const UpdateSpan& span, const UpdateConstants& constants) {
  constexpr unsigned threads = 256;
  using Pass = QuantisedUpdate<Master, Gradient>;
  Pass pass{.arrays = UpdateArrays<Master, Gradient>::of(span, constants), .codes = {}, .scales = {}, .squared = {}};
  for (int j = 0; j < pass.arrays.moment_count; ++j) {
    const MomentArray& moment = span.state.moments[static_cast<std::size_t>(j)];
    pass.codes[j] = reinterpret_cast<std::uint8_t*>(moment.values);
    pass.scales[j] = moment.scales;
    pass.squared[j] = moment_of(span.format, j).squared;
  }
  const auto numel = static_cast<std::int64_t>(span.numel);
  const std::int64_t blocks = (numel + block_numel - 1) / block_numel;
  const LaunchShape shape{.grid = grid_blocks(blocks * warp_threads, threads), .block = threads};
  launch(queue, "update", shape, each_quantised_block<Pass>, pass, numel);
}

// ---- Which of them

template <class Master, class Gradient>
void update_of(KernelQueue& queue, const UpdateSpan& span, const UpdateConstants& constants) {
  switch (span.format.moments) {
    case MomentDType::f32:
      return update_elements<Master, float, Gradient>(queue, span, constants);
    case MomentDType::bf16:
      return update_elements<Master, __nv_bfloat16, Gradient>(queue, span, constants);
    case MomentDType::int8:
      return update_quantised<Master, Gradient>(queue, span, constants);
  }
}

}  // namespace

void update(KernelQueue& queue, const UpdateSpan& span, const UpdateConstants& constants) {
  with_element(span.gradient_dtype, [&](auto gradient) {
    using Gradient = decltype(gradient);
    if (master_dtype(span) == DType::bf16)
      update_of<__nv_bfloat16, Gradient>(queue, span, constants);
    else
      update_of<float, Gradient>(queue, span, constants);
  });
}

}  // namespace headrace

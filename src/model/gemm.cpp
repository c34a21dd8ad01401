#include "src/model/gemm.h"

#include <omp.h>

#include <dnnl.hpp>

#include "headrace/errors.h"
#include "src/model/row_kernels.h"

namespace headrace {
namespace {

using dnnl::memory;

dnnl::engine& engine() {
  static dnnl::engine instance(dnnl::engine::kind::cpu, 0);
  return instance;
}

dnnl::stream& stream() {
  thread_local dnnl::stream instance(engine());
  return instance;
}

memory::data_type type_of(DType dtype) {
  return dtype == DType::f32 ? memory::data_type::f32 : memory::data_type::bf16;
}

memory::desc stored(std::int64_t rows, std::int64_t columns, DType dtype, std::int64_t stride,
                    bool transposed) {
  return {{rows, columns}, type_of(dtype), transposed ? memory::dims{1, stride} : memory::dims{stride, 1}};
}

// oneDNN reads the caller's OpenMP thread count when it makes a primitive.
class OneThread {
 public:
  OneThread() : before_(omp_get_max_threads()) { omp_set_num_threads(1); }
  ~OneThread() { omp_set_num_threads(before_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_;
};

class NativeGemm final : public Gemm {
 public:
  explicit NativeGemm(const GemmShape& s)
      : a_(stored(s.m, s.k, s.input, s.a_stride, s.a_transposed)),
        b_(stored(s.k, s.n, s.input, s.b_stride, s.b_transposed)),
        bias_(s.bias ? memory::desc({1, s.n}, type_of(s.input), memory::dims{s.n, 1}) : memory::desc()),
        c_(stored(s.m, s.n, s.output, s.c_stride, false)) {
    const OneThread one_thread;
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    if (s.accumulate) {
      dnnl::post_ops add_to_output;
      add_to_output.append_sum(1.0f);
      attributes.set_post_ops(add_to_output);
    }
    const auto description = s.bias ? dnnl::matmul::desc(a_, b_, bias_, c_) : dnnl::matmul::desc(a_, b_, c_);
    const dnnl::matmul::primitive_desc chosen(description, attributes, engine());
    scratch_ = chosen.scratchpad_desc();
    primitive_ = dnnl::matmul(chosen);
  }

  Bytes scratch_bytes() const override { return round_up(scratch_.get_size(), 64); }

  void run(const void* a, const void* b, const void* bias, void* c, std::byte* scratch) const override {
    const auto at = [](const memory::desc& desc, const void* data) {
      return memory(desc, engine(), const_cast<void*>(data));
    };
    std::unordered_map<int, memory> arguments{{DNNL_ARG_SRC, at(a_, a)},
                                              {DNNL_ARG_WEIGHTS, at(b_, b)},
                                              {DNNL_ARG_DST, at(c_, c)},
                                              {DNNL_ARG_SCRATCHPAD, at(scratch_, scratch)}};
    if (bias != nullptr) arguments.emplace(DNNL_ARG_BIAS, at(bias_, bias));
    primitive_.execute(stream(), arguments);
  }

 private:
  memory::desc a_, b_, bias_, c_, scratch_;
  dnnl::matmul primitive_;
};

GemmShape widened_shape(GemmShape s) {
  s.a_stride = s.a_transposed ? s.m : s.k;
  s.b_stride = s.b_transposed ? s.k : s.n;
  s.input = DType::f32;
  if (s.output == DType::bf16) s.c_stride = s.n;
  s.output = DType::f32;
  return s;
}

// bf16 operands, converted: the product itself is fp32.
class WidenedGemm final : public Gemm {
 public:
  explicit WidenedGemm(const GemmShape& shape) : shape_(shape), product_(widened_shape(shape)) {
    HEADRACE_CHECK(!(shape.accumulate && shape.output == DType::bf16), "a bf16 product cannot accumulate");
  }

  Bytes scratch_bytes() const override {
    return fp32_bytes(shape_.m * shape_.k) + fp32_bytes(shape_.k * shape_.n) + fp32_bytes(shape_.n) +
           (shape_.output == DType::bf16 ? fp32_bytes(shape_.m * shape_.n) : 0) + product_.scratch_bytes();
  }

  void run(const void* a, const void* b, const void* bias, void* c, std::byte* scratch) const override {
    const auto take = [&scratch](std::int64_t numel) {
      auto* memory = reinterpret_cast<float*>(scratch);
      scratch += fp32_bytes(numel);
      return memory;
    };
    const RowKernels& kernels = row_kernels(DType::bf16);
    float* wide_a = take(shape_.m * shape_.k);
    float* wide_b = take(shape_.k * shape_.n);
    float* wide_bias = take(shape_.n);
    widen(a, wide_a, shape_.a_transposed ? shape_.k : shape_.m, shape_.a_transposed ? shape_.m : shape_.k,
          shape_.a_stride);
    widen(b, wide_b, shape_.b_transposed ? shape_.n : shape_.k, shape_.b_transposed ? shape_.k : shape_.n,
          shape_.b_stride);
    if (bias != nullptr) kernels.widen(bias, wide_bias, shape_.n);
    const float* bias_used = bias != nullptr ? wide_bias : nullptr;
    if (shape_.output == DType::f32) return product_.run(wide_a, wide_b, bias_used, c, scratch);
    float* wide_c = take(shape_.m * shape_.n);
    product_.run(wide_a, wide_b, bias_used, wide_c, scratch);
    for (std::int64_t r = 0; r < shape_.m; ++r)
      kernels.round(wide_c + r * shape_.n, static_cast<bf16*>(c) + r * shape_.c_stride, shape_.n);
  }

 private:
  static Bytes fp32_bytes(std::int64_t numel) { return round_up(static_cast<Bytes>(numel) * 4, 64); }
  static void widen(const void* from, float* to, std::int64_t rows, std::int64_t columns,
                    std::int64_t stride) {
    for (std::int64_t r = 0; r < rows; ++r)
      row_kernels(DType::bf16).widen(static_cast<const bf16*>(from) + r * stride, to + r * columns, columns);
  }

  GemmShape shape_;
  NativeGemm product_;
};

}  // namespace

bool cpu_has_bf16_gemm() {
  // A bit mask that grows with the instruction sets.
  const auto isa = static_cast<unsigned>(dnnl::get_effective_cpu_isa());
  const auto needed = static_cast<unsigned>(dnnl::cpu_isa::avx512_core);
  return (isa & needed) == needed;
}

GemmCache::GemmCache(bool native_bf16) : native_bf16_(native_bf16) {}

const Gemm& GemmCache::get(const GemmShape& shape) {
  std::unique_ptr<Gemm>& gemm = gemms_[shape];
  if (!gemm) {
    if (shape.input == DType::bf16 && !native_bf16_)
      gemm = std::make_unique<WidenedGemm>(shape);
    else
      gemm = std::make_unique<NativeGemm>(shape);
  }
  return *gemm;
}

}  // namespace headrace

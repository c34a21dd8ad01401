#include "src/model/gemm.h"

#include <omp.h>

#include <algorithm>
#include <dnnl.hpp>
#include <memory>
#include <vector>

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
  HEADRACE_CHECK(dtype != DType::f16, "oneDNN computes no fp16 on this device");
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

// Terms of a widened product that are converted and summed at a time: what bounds its scratch memory, and
// fits a core's cache with the operands' rows and columns.
constexpr std::int64_t terms_at_a_time = 1024;

// The fp32 product of one piece of the terms, added to those before it.
GemmShape widened_shape(GemmShape s, std::int64_t terms, bool first) {
  s.k = terms;
  s.a_stride = s.a_transposed ? s.m : terms;
  s.b_stride = s.b_transposed ? terms : s.n;
  if (s.output != DType::f32) s.c_stride = s.n;
  s.input = s.output = DType::f32;
  s.bias = s.bias && first;
  s.accumulate = s.accumulate || !first;
  return s;
}

// 16-bit operands, converted: the product itself is fp32, its pieces of terms added in order.
class WidenedGemm final : public Gemm {
 public:
  explicit WidenedGemm(const GemmShape& shape) : shape_(shape) {
    HEADRACE_CHECK(!shape.accumulate || shape.output == DType::f32, "a product in {} cannot accumulate",
                   name_of(shape.output));
    for (std::int64_t begin = 0; begin == 0 || begin < shape.k; begin += terms_at_a_time) {
      const std::int64_t terms = std::min(terms_at_a_time, shape.k - begin);
      const bool like_the_last = pieces_.size() > 1 && terms == terms_at_a_time;
      pieces_.push_back(like_the_last
                            ? pieces_.back()
                            : std::make_shared<NativeGemm>(widened_shape(shape, terms, begin == 0)));
      product_scratch_ = std::max(product_scratch_, pieces_.back()->scratch_bytes());
    }
  }

  Bytes scratch_bytes() const override {
    const std::int64_t terms = std::min(terms_at_a_time, shape_.k);
    return fp32_bytes(shape_.m * terms) + fp32_bytes(terms * shape_.n) + fp32_bytes(shape_.n) +
           (shape_.output == DType::f32 ? 0 : fp32_bytes(shape_.m * shape_.n)) + product_scratch_;
  }

  void run(const void* a, const void* b, const void* bias, void* c, std::byte* scratch) const override {
    const auto take = [&scratch](std::int64_t numel) {
      auto* memory = reinterpret_cast<float*>(scratch);
      scratch += fp32_bytes(numel);
      return memory;
    };
    const std::int64_t at_once = std::min(terms_at_a_time, shape_.k);
    float* wide_a = take(shape_.m * at_once);
    float* wide_b = take(at_once * shape_.n);
    float* wide_bias = take(shape_.n);
    auto* wide_c = static_cast<float*>(c);
    if (shape_.output != DType::f32) wide_c = take(shape_.m * shape_.n);
    const RowKernels& kernels = row_kernels(shape_.input);
    if (bias != nullptr) kernels.widen(bias, wide_bias, shape_.n);
    for (std::size_t piece = 0; piece < pieces_.size(); ++piece) {
      const std::int64_t begin = static_cast<std::int64_t>(piece) * terms_at_a_time;
      const std::int64_t terms = std::min(terms_at_a_time, shape_.k - begin);
      widen(a, wide_a, {shape_.m, begin, terms, shape_.a_stride, !shape_.a_transposed});
      widen(b, wide_b, {shape_.n, begin, terms, shape_.b_stride, shape_.b_transposed});
      pieces_[piece]->run(wide_a, wide_b, bias != nullptr && piece == 0 ? wide_bias : nullptr, wide_c,
                          scratch);
    }
    if (shape_.output == DType::f32) return;
    for (std::int64_t r = 0; r < shape_.m; ++r)
      row_kernels(shape_.output).round(wide_c + r * shape_.n, element(c, r * shape_.c_stride), shape_.n);
  }

 private:
  static Bytes fp32_bytes(std::int64_t numel) { return round_up(static_cast<Bytes>(numel) * 4, 64); }
  static const void* element(const void* start, std::int64_t index) {
    return static_cast<const std::byte*>(start) + index * 2;
  }
  static void* element(void* start, std::int64_t index) { return static_cast<std::byte*>(start) + index * 2; }

  // Terms [begin, begin + terms) of an operand that holds `others` rows of the terms, or a row for each term.
  struct OperandPiece {
    std::int64_t others, begin, terms, stride;
    bool terms_in_a_row;
  };
  void widen(const void* from, float* to, const OperandPiece& p) const {
    const std::int64_t rows = p.terms_in_a_row ? p.others : p.terms;
    const std::int64_t columns = p.terms_in_a_row ? p.terms : p.others;
    const void* first = element(from, p.terms_in_a_row ? p.begin : p.begin * p.stride);
    for (std::int64_t r = 0; r < rows; ++r)
      row_kernels(shape_.input).widen(element(first, r * p.stride), to + r * columns, columns);
  }

  GemmShape shape_;
  std::vector<std::shared_ptr<const NativeGemm>> pieces_;
  Bytes product_scratch_ = 0;
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
    if (shape.input == DType::f16 || (shape.input == DType::bf16 && !native_bf16_))
      gemm = std::make_unique<WidenedGemm>(shape);
    else
      gemm = std::make_unique<NativeGemm>(shape);
  }
  return *gemm;
}

}  // namespace headrace

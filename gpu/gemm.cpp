#include "gpu/gemm.h"

#include <fmt/format.h>

#include <bit>
#include <numeric>
#include <string_view>

#include "gpu/bias_rows.h"
#include "gpu/cublas_status.h"
#include "headrace/errors.h"

namespace headrace {
namespace {

constexpr Bytes workspace_alignment = 256;    // cuBLAS asks for it
constexpr std::int64_t block_alignment = 64;  // of DeviceMemory's blocks, and of parameters in a flat vector

template <class Descriptor, cublasStatus_t (*destroy)(Descriptor)>
struct DescriptorTraits {
  using Raw = Descriptor;
  static Raw none() noexcept { return nullptr; }
  static void close(Raw raw) noexcept { destroy(raw); }
};
using Operation = Owned<DescriptorTraits<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>>;
using Layout = Owned<DescriptorTraits<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>>;
using Preference = Owned<DescriptorTraits<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>>;

GemmType gemm_type(DType dtype) {
  return dtype == DType::f32 ? GemmType::f32 : dtype == DType::bf16 ? GemmType::bf16 : GemmType::f16;
}
std::int64_t size_of(GemmType type) {
  return type == GemmType::f32 ? 4 : 2;
}
std::string_view name_of(GemmType type) {
  constexpr std::string_view names[] = {"fp32", "bf16", "fp16"};
  return names[static_cast<std::size_t>(type)];
}
cudaDataType_t cuda_type(GemmType type) {
  constexpr cudaDataType_t types[] = {CUDA_R_32F, CUDA_R_16BF, CUDA_R_16F};
  return types[static_cast<std::size_t>(type)];
}

// What the address of any row of a matrix is a multiple of.
std::uint32_t alignment_of(std::int64_t stride, GemmType type) {
  return static_cast<std::uint32_t>(std::gcd(block_alignment, stride * size_of(type)));
}

bool is_multiple(const void* address, std::uint64_t of) {
  return reinterpret_cast<std::uintptr_t>(address) % of == 0;
}

template <class Descriptor, class Attribute, class Value>
void set(cublasStatus_t (*setter)(Descriptor, Attribute, const void*, std::size_t), Descriptor descriptor,
         Attribute attribute, const Value& value, std::string_view what) {
  check_cublas(setter(descriptor, attribute, &value, sizeof value), what);
}

Layout layout_of(GemmType type, std::int64_t rows, std::int64_t columns, std::int64_t stride) {
  cublasLtMatrixLayout_t raw = nullptr;
  check_cublas(cublasLtMatrixLayoutCreate(&raw, cuda_type(type), static_cast<std::uint64_t>(columns),
                                          static_cast<std::uint64_t>(rows), stride),
               "describe a matrix");
  return Layout(raw);
}

Operation operation_of(const GemmProblem& p) {
  cublasLtMatmulDesc_t raw = nullptr;
  check_cublas(cublasLtMatmulDescCreate(&raw, CUBLAS_COMPUTE_32F, CUDA_R_32F), "describe a product");
  Operation operation(raw);
  const auto put = [&](cublasLtMatmulDescAttributes_t attribute, const auto& value) {
    set(cublasLtMatmulDescSetAttribute, raw, attribute, value, "describe a product");
  };
  put(CUBLASLT_MATMUL_DESC_TRANSA, p.transpose == Transpose::b ? CUBLAS_OP_T : CUBLAS_OP_N);
  put(CUBLASLT_MATMUL_DESC_TRANSB, p.transpose == Transpose::a ? CUBLAS_OP_T : CUBLAS_OP_N);
  if (p.bias) {
    put(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    // The choice of an algorithm reads the alignment of this address, and only that.
    put(CUBLASLT_MATMUL_DESC_BIAS_POINTER, reinterpret_cast<const void*>(block_alignment));
  }
  return operation;
}

Preference preference_of(const GemmProblem& p, Bytes workspace_bytes) {
  cublasLtMatmulPreference_t raw = nullptr;
  check_cublas(cublasLtMatmulPreferenceCreate(&raw), "limit the choice of an algorithm");
  Preference preference(raw);
  const auto put = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
    set(cublasLtMatmulPreferenceSetAttribute, raw, attribute, value, "limit the choice of an algorithm");
  };
  put(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<std::uint64_t>(workspace_bytes));
  // The other schemes round parts of a sum to the output's type.
  put(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  put(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment_of(p.b_stride, p.input));
  put(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment_of(p.a_stride, p.input));
  put(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment_of(p.c_stride, p.output));
  put(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment_of(p.c_stride, p.output));
  return preference;
}

void check_operands(const GemmProblem& p, const GemmOperands& operands) {
  const auto aligned = [](const std::byte* address, std::int64_t stride, GemmType type) {
    return is_multiple(address, alignment_of(stride, type));
  };
  HEADRACE_CHECK(aligned(operands.a, p.a_stride, p.input) && aligned(operands.b, p.b_stride, p.input) &&
                     aligned(operands.c, p.c_stride, p.output) &&
                     is_multiple(operands.bias, static_cast<std::uint64_t>(block_alignment)),
                 "an operand of {} starts neither at a block of device memory nor at a row of one",
                 describe(p));
}

}  // namespace

std::string describe(const GemmProblem& p) {
  constexpr std::string_view transposed[] = {"", ", a transposed", ", b transposed"};
  return fmt::format("product of {0} {1} x {2} by {2} x {3} to {4}{5}{6} (strides {7}, {8}, {9})",
                     name_of(p.input), p.m, p.k, p.n, name_of(p.output),
                     transposed[static_cast<std::size_t>(p.transpose)], p.bias ? ", with bias" : "",
                     p.a_stride, p.b_stride, p.c_stride);
}

std::size_t CudaGemm::Hash::operator()(const GemmProblem& p) const noexcept {
  const auto kind = static_cast<std::int64_t>(p.input) | static_cast<std::int64_t>(p.output) << 2 |
                    static_cast<std::int64_t>(p.transpose) << 4 | static_cast<std::int64_t>(p.bias) << 6;
  std::uint64_t hash = 0;
  for (const std::int64_t part : {kind, p.m, p.n, p.k, p.a_stride, p.b_stride, p.c_stride})
    hash = (std::rotl(hash, 23) ^ static_cast<std::uint64_t>(part)) * 0x9e3779b97f4a7c15u;
  return hash;
}

// How cuBLAS computes a problem. It sees a row-major matrix as the transpose of a column-major one, and
// computes c' = b' a': its first operand is our b, a row of its result is a column of ours, and so the bias
// is one a row.
struct CudaGemm::Plan {
  Operation operation;
  Layout a, b, c;
  cublasLtMatmulAlgo_t algorithm{};
};

CudaGemm::CudaGemm(std::byte* workspace, Bytes bytes) {
  HEADRACE_CHECK(bytes >= workspace_alignment, "a workspace of {} bytes", bytes);
  const auto address = reinterpret_cast<std::uintptr_t>(workspace);
  workspace_ = workspace + (round_up(address, workspace_alignment) - address);
  workspace_bytes_ = bytes - workspace_alignment;  // wherever it starts: the algorithm must not depend on it
}

CudaGemm::~CudaGemm() = default;

void CudaGemm::run(KernelQueue& queue, const GemmCall& call) {
  const Matrix &a = call.a, &b = call.b, &c = call.c;
  const bool a_transposed = call.transpose == Transpose::a, b_transposed = call.transpose == Transpose::b;
  const std::int64_t k = a_transposed ? a.rows : a.columns;
  HEADRACE_CHECK(
      c.rows == (a_transposed ? a.columns : a.rows) && c.columns == (b_transposed ? b.rows : b.columns) &&
          k == (b_transposed ? b.columns : b.rows),
      "product of {} x {} and {} x {} to {} x {}", a.rows, a.columns, b.rows, b.columns, c.rows, c.columns);
  HEADRACE_CHECK(a.dtype == b.dtype && (c.dtype == a.dtype || c.dtype == DType::f32),
                 "product of {} and {} to {}", name_of(a.dtype), name_of(b.dtype), name_of(c.dtype));
  run(queue,
      {.input = gemm_type(a.dtype),
       .output = gemm_type(c.dtype),
       .transpose = call.transpose,
       .m = c.rows,
       .n = c.columns,
       .k = k,
       .a_stride = a.stride,
       .b_stride = b.stride,
       .c_stride = c.stride},
      {.a = a.data, .b = b.data, .bias = call.bias, .c = c.data, .accumulate = call.accumulate});
}

void CudaGemm::run(KernelQueue& queue, GemmProblem problem, const GemmOperands& operands) {
  if (!queue.active() || problem.m == 0 || problem.n == 0) return;
  // cuBLAS adds a bias of the output's type alone, and knows no product of no terms.
  const bool any_terms = problem.k > 0;
  problem.bias = operands.bias != nullptr && problem.input == problem.output && any_terms;
  if (any_terms) multiply(queue, problem, operands);
  const bool bias_left = operands.bias != nullptr && !problem.bias;
  const bool zero_left = !any_terms && !operands.accumulate;
  if (!bias_left && !zero_left) return;
  HEADRACE_CHECK(problem.output == problem.input || problem.output == GemmType::f32, "a bias for the {}",
                 describe(problem));
  bias_rows(queue, {.c = operands.c,
                    .type = problem.output,
                    .bias = operands.bias,
                    .bias_type = problem.input,
                    .rows = problem.m,
                    .columns = problem.n,
                    .stride = problem.c_stride,
                    .accumulate = any_terms || operands.accumulate});
}

void CudaGemm::multiply(KernelQueue& queue, const GemmProblem& problem, const GemmOperands& operands) {
  check_operands(problem, operands);
  const Plan& plan = plan_of(problem);
  if (problem.bias)
    set(cublasLtMatmulDescSetAttribute, plan.operation.get(), CUBLASLT_MATMUL_DESC_BIAS_POINTER,
        operands.bias, "take a bias");
  const float product_factor = 1.0f, before_factor = operands.accumulate ? 1.0f : 0.0f;
  constexpr const char* name = "matmul";
  queue.launching(name);
  const cublasStatus_t status =
      cublasLtMatmul(handle_.get(), plan.operation.get(), &product_factor, operands.b, plan.b.get(),
                     operands.a, plan.a.get(), &before_factor, operands.c, plan.c.get(), operands.c,
                     plan.c.get(), &plan.algorithm, workspace_, workspace_bytes_, queue.stream());
  queue.launched(name);
  // A device that has failed fails this too: the wait that comes says better why.
  if (status != CUBLAS_STATUS_SUCCESS && queue.active())
    check_cublas(status, "start the " + describe(problem));
}

CudaGemm::Plan& CudaGemm::plan_of(const GemmProblem& problem) {
  std::unique_ptr<Plan>& held = plans_[problem];
  if (held) return *held;
  if (!handle_) {
    cublasLtHandle_t raw = nullptr;
    check_cublas(cublasLtCreate(&raw), "start");
    handle_.reset(raw);
  }
  const bool a_transposed = problem.transpose == Transpose::a,
             b_transposed = problem.transpose == Transpose::b;
  auto plan = std::make_unique<Plan>();
  plan->operation = operation_of(problem);
  plan->a = layout_of(problem.input, a_transposed ? problem.k : problem.m,
                      a_transposed ? problem.m : problem.k, problem.a_stride);
  plan->b = layout_of(problem.input, b_transposed ? problem.n : problem.k,
                      b_transposed ? problem.k : problem.n, problem.b_stride);
  plan->c = layout_of(problem.output, problem.m, problem.n, problem.c_stride);
  const Preference preference = preference_of(problem, workspace_bytes_);
  cublasLtMatmulHeuristicResult_t found{};
  int count = 0;
  check_cublas(
      cublasLtMatmulAlgoGetHeuristic(handle_.get(), plan->operation.get(), plan->b.get(), plan->a.get(),
                                     plan->c.get(), plan->c.get(), preference.get(), 1, &found, &count),
      "choose an algorithm for the " + describe(problem));
  check_cublas(count == 0 ? CUBLAS_STATUS_NOT_SUPPORTED : found.state,
               "choose an algorithm for the " + describe(problem));
  plan->algorithm = found.algo;
  held = std::move(plan);
  return *held;
}

}  // namespace headrace

// The functions of cublasLt.h that gpu/ uses, as far as gpu/ uses them.
#include "support/cuda_emulation/cublaslt.h"

#include <cublasLt.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <map>
#include <mutex>
#include <typeindex>

#include "support/cuda_emulation/cublaslt_product.h"
#include "support/cuda_emulation/options.h"
#include "support/cuda_emulation/runtime.h"

struct cublasLtContext {};

namespace cuda_emulation {
namespace {

std::atomic<std::uint64_t> choices{0};

// ---- descriptors

struct Layout : cublasLtMatrixLayoutOpaque_t {
  MatrixLayout value;
};

struct Operation : cublasLtMatmulDescOpaque_t {
  cublasComputeType_t compute_type = CUBLAS_COMPUTE_32F;
  cudaDataType_t scale_type = CUDA_R_32F;
  std::int32_t transa = CUBLAS_OP_N, transb = CUBLAS_OP_N;
  std::uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void* bias = nullptr;
  std::int32_t bias_type = -1;
};

struct Preference : cublasLtMatmulPreferenceOpaque_t {
  std::uint64_t workspace_bytes = 0;
  std::uint32_t reduction_schemes = CUBLASLT_REDUCTION_SCHEME_MASK;
  std::uint32_t alignment_a = 256, alignment_b = 256, alignment_c = 256, alignment_d = 256;
};

// Which objects live, and what they are.
class Objects {
 public:
  static Objects& all() {
    static Objects instance;
    return instance;
  }
  void add(const void* object, std::type_index type) {
    const std::lock_guard lock(mutex_);
    live_.insert_or_assign(object, type);
  }
  void check(const void* object, std::type_index type) {
    if (!holds(object, type)) violation("use of a cuBLASLt object that does not live");
  }
  void remove(const void* object, std::type_index type) {
    check(object, type);
    const std::lock_guard lock(mutex_);
    live_.erase(object);
  }
  std::size_t count() {
    const std::lock_guard lock(mutex_);
    return live_.size();
  }

 private:
  bool holds(const void* object, std::type_index type) {
    const std::lock_guard lock(mutex_);
    const auto found = live_.find(object);
    return found != live_.end() && found->second == type;
  }
  std::mutex mutex_;
  std::map<const void*, std::type_index> live_;
};

template <class Object, class Opaque>
Object& live(Opaque* opaque) {
  Objects::all().check(opaque, typeid(Object));
  return *static_cast<Object*>(opaque);
}
template <class Object, class Opaque>
cublasStatus_t create(Opaque** opaque, Object* object) {
  Objects::all().add(object, typeid(Object));
  *opaque = object;
  return CUBLAS_STATUS_SUCCESS;
}
template <class Object, class Opaque>
cublasStatus_t destroy(Opaque* opaque) {
  Objects::all().remove(opaque, typeid(Object));
  delete static_cast<Object*>(opaque);
  return CUBLAS_STATUS_SUCCESS;
}

template <class Value>
cublasStatus_t set(Value& value, const void* from, std::size_t bytes) {
  if (from == nullptr || bytes != sizeof value) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&value, from, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

// ---- what is asked for

struct Question {
  MatrixLayout a, b, c, d;
  bool a_transposed, b_transposed, bias;
};

Question question_of(const Operation& op, const Layout& a, const Layout& b, const Layout& c,
                     const Layout& d) {
  return {a.value,
          b.value,
          c.value,
          d.value,
          op.transa == CUBLAS_OP_T,
          op.transb == CUBLAS_OP_T,
          op.epilogue == CUBLASLT_EPILOGUE_BIAS};
}

bool well_formed(const Question& q) {
  const auto matrix = [](const MatrixLayout& m) {
    return m.rows > 0 && m.columns > 0 && m.leading >= m.rows;
  };
  const std::int64_t k = q.a_transposed ? q.a.rows : q.a.columns;
  return matrix(q.a) && matrix(q.b) && matrix(q.c) && matrix(q.d) &&
         q.d.rows == (q.a_transposed ? q.a.columns : q.a.rows) &&
         q.d.columns == (q.b_transposed ? q.b.rows : q.b.columns) &&
         k == (q.b_transposed ? q.b.columns : q.b.rows) && q.c.rows == q.d.rows && q.c.columns == q.d.columns;
}

// NVIDIA's table of types for CUBLAS_COMPUTE_32F, as far as emulated.
bool supported(const Operation& op, const Question& q) {
  const bool types = size_of(q.a.type) != 0 && q.a.type == q.b.type && q.c.type == q.d.type &&
                     (q.d.type == q.a.type || q.d.type == CUDA_R_32F);
  const bool operation = op.compute_type == CUBLAS_COMPUTE_32F && op.scale_type == CUDA_R_32F &&
                         (op.epilogue == CUBLASLT_EPILOGUE_DEFAULT || q.bias) &&
                         (op.bias_type == -1 || op.bias_type == q.d.type);
  return types && operation;
}

// ---- algorithms

std::uint64_t signature(const Question& q) {
  std::uint64_t hash = 0;
  const auto mix = [&hash](std::int64_t part) {
    hash = (std::rotl(hash, 23) ^ static_cast<std::uint64_t>(part)) * 0x9e3779b97f4a7c15u;
  };
  for (const MatrixLayout& m : {q.a, q.b, q.c, q.d}) mix(m.type), mix(m.rows), mix(m.columns), mix(m.leading);
  mix(q.a_transposed), mix(q.b_transposed), mix(q.bias);
  return hash;
}

struct Algorithm {
  std::uint64_t signature;
  std::uint64_t workspace_bytes;  // that it needs
  std::int64_t parts;
  bool round_parts;
  std::uint16_t alignment_a, alignment_b, alignment_c, alignment_d, alignment_bias;
};
static_assert(sizeof(Algorithm) <= sizeof(cublasLtMatmulAlgo_t));

std::uint16_t alignment_of(const void* address) {
  const auto bits = reinterpret_cast<std::uintptr_t>(address);
  return static_cast<std::uint16_t>(std::min<std::uintptr_t>(256, bits == 0 ? 256 : bits & -bits));
}

Algorithm choose(const Question& q, const Operation& op, const Preference& limits) {
  const auto narrow = [](std::uint32_t alignment) { return static_cast<std::uint16_t>(alignment); };
  Algorithm algorithm{
      .signature = signature(q),
      .workspace_bytes = 0,
      .parts = 1,
      .round_parts = (limits.reduction_schemes &
                      (CUBLASLT_REDUCTION_SCHEME_INPLACE | CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE)) != 0,
      .alignment_a = narrow(limits.alignment_a),
      .alignment_b = narrow(limits.alignment_b),
      .alignment_c = narrow(limits.alignment_c),
      .alignment_d = narrow(limits.alignment_d),
      .alignment_bias = alignment_of(q.bias ? op.bias : nullptr)};
  // As many parts as the promises make, unless their sums do not fit.
  const int promises = std::countr_zero(algorithm.alignment_a) + std::countr_zero(algorithm.alignment_b) +
                       std::countr_zero(algorithm.alignment_d) + std::countr_zero(algorithm.alignment_bias) +
                       std::countr_zero(limits.workspace_bytes | std::uint64_t{1} << 63);
  const std::int64_t wanted = 2 + promises % 3;
  const std::uint64_t bytes = static_cast<std::uint64_t>(q.d.rows * q.d.columns * wanted) * sizeof(float);
  if (bytes <= limits.workspace_bytes) algorithm.parts = wanted, algorithm.workspace_bytes = bytes;
  return algorithm;
}

// ---- a call

void check_alignment(const char* operand, const void* address, std::uint16_t promised) {
  if (alignment_of(address) < promised)
    violation(fmt::format(
        "cublasLtMatmul: {} at {} is not aligned to the {} bytes that the choice of its algorithm was "
        "promised",
        operand, address, promised));
}

void check_call(const Question& q, const Product& p, const Algorithm& algorithm) {
  if (signature(q) != algorithm.signature)
    violation("cublasLtMatmul: the algorithm was chosen for another product");
  if (q.bias && p.bias == nullptr) violation("cublasLtMatmul: the bias to add is at address 0");
  check_alignment("A", p.a_data, algorithm.alignment_a);
  check_alignment("B", p.b_data, algorithm.alignment_b);
  check_alignment("C", p.c_data, algorithm.alignment_c);
  check_alignment("D", p.d_data, algorithm.alignment_d);
  if (q.bias) check_alignment("the bias", p.bias, algorithm.alignment_bias);
  if (p.workspace_bytes > 0) check_alignment("the workspace", p.workspace, 256);
}

void check_apart(const Question& q, const Product& p) {
  const auto check = [&](const MatrixLayout& written, const void* at, const MatrixLayout& other,
                         const void* other_at, const char* what) {
    if (overlap(written, at, other, other_at))
      violation(fmt::format("cublasLtMatmul: {} overlap in memory", what));
  };
  const MatrixLayout bias{q.d.type, q.d.rows, 1, q.d.rows};
  const auto words = static_cast<std::int64_t>(p.workspace_bytes / sizeof(float));
  const MatrixLayout workspace{CUDA_R_32F, words, words > 0, words};
  check(q.d, p.d_data, q.a, p.a_data, "A and the result");
  check(q.d, p.d_data, q.b, p.b_data, "B and the result");
  if (p.c_data != p.d_data) check(q.d, p.d_data, q.c, p.c_data, "C and the result");
  if (q.bias) check(q.d, p.d_data, bias, p.bias, "the bias and the result");
  check(workspace, p.workspace, q.a, p.a_data, "A and the workspace");
  check(workspace, p.workspace, q.b, p.b_data, "B and the workspace");
  check(workspace, p.workspace, q.d, p.d_data, "the result and the workspace");
  if (q.bias) check(workspace, p.workspace, bias, p.bias, "the bias and the workspace");
}

}  // namespace

std::uint64_t algorithms_chosen() {
  return choices;
}
std::size_t cublaslt_objects() {
  return Objects::all().count();
}

}  // namespace cuda_emulation

namespace emulation = cuda_emulation;

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  return emulation::create(handle, new cublasLtContext);
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  return emulation::destroy<cublasLtContext>(handle);
}

const char* cublasLtGetStatusName(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_EXECUTION_FAILED:
      return "CUBLAS_STATUS_EXECUTION_FAILED";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "CUBLAS_STATUS_NOT_SUPPORTED";
    default:
      return "a status of cuBLAS";
  }
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type,
                                          std::uint64_t rows, std::uint64_t columns, std::int64_t leading) {
  auto* object = new emulation::Layout{};
  object->value = {type, static_cast<std::int64_t>(rows), static_cast<std::int64_t>(columns), leading};
  return emulation::create(layout, object);
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  return emulation::destroy<emulation::Layout>(layout);
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* description, cublasComputeType_t compute_type,
                                        cudaDataType_t scale_type) {
  auto* object = new emulation::Operation{};
  object->compute_type = compute_type;
  object->scale_type = scale_type;
  return emulation::create(description, object);
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t description) {
  return emulation::destroy<emulation::Operation>(description);
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t description,
                                              cublasLtMatmulDescAttributes_t attribute, const void* from,
                                              std::size_t bytes) {
  auto& operation = emulation::live<emulation::Operation>(description);
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return emulation::set(operation.transa, from, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return emulation::set(operation.transb, from, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return emulation::set(operation.epilogue, from, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return emulation::set(operation.bias, from, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
      return emulation::set(operation.bias_type, from, bytes);
    default:
      emulation::violation(
          fmt::format("attribute {} of a product is not emulated", static_cast<int>(attribute)));
  }
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  return emulation::create(preference, new emulation::Preference{});
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  return emulation::destroy<emulation::Preference>(preference);
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* from, std::size_t bytes) {
  auto& limits = emulation::live<emulation::Preference>(preference);
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      return emulation::set(limits.workspace_bytes, from, bytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
      return emulation::set(limits.reduction_schemes, from, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
      return emulation::set(limits.alignment_a, from, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
      return emulation::set(limits.alignment_b, from, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
      return emulation::set(limits.alignment_c, from, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
      return emulation::set(limits.alignment_d, from, bytes);
    default:
      emulation::violation(
          fmt::format("attribute {} of a preference is not emulated", static_cast<int>(attribute)));
  }
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t description,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t results[], int* count) {
  using emulation::live, emulation::Layout;
  live<cublasLtContext>(handle);
  ++emulation::choices;
  const auto& operation = live<emulation::Operation>(description);
  const auto question =
      question_of(operation, live<Layout>(a), live<Layout>(b), live<Layout>(c), live<Layout>(d));
  *count = 0;
  if (wanted < 1 || !well_formed(question)) return CUBLAS_STATUS_INVALID_VALUE;
  if (!supported(operation, question)) return CUBLAS_STATUS_NOT_SUPPORTED;
  const emulation::Algorithm algorithm = choose(question, operation, live<emulation::Preference>(preference));
  results[0] = {};
  std::memcpy(results[0].algo.data, &algorithm, sizeof algorithm);
  results[0].workspaceSize = algorithm.workspace_bytes;
  results[0].state = CUBLAS_STATUS_SUCCESS;
  *count = 1;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t description, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                              cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                              cublasLtMatrixLayout_t c_layout, void* d, cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t* algo, void* workspace, std::size_t workspace_bytes,
                              cudaStream_t stream) {
  using emulation::live, emulation::Layout;
  live<cublasLtContext>(handle);
  const auto& operation = live<emulation::Operation>(description);
  const auto question = question_of(operation, live<Layout>(a_layout), live<Layout>(b_layout),
                                    live<Layout>(c_layout), live<Layout>(d_layout));
  if (alpha == nullptr || beta == nullptr || a == nullptr || b == nullptr || c == nullptr || d == nullptr ||
      !well_formed(question) || (c == d && question.c != question.d))
    return CUBLAS_STATUS_INVALID_VALUE;
  if (algo == nullptr)
    emulation::violation("cublasLtMatmul: the algorithm would be chosen by the operands' addresses");
  emulation::Algorithm algorithm;
  std::memcpy(&algorithm, algo->data, sizeof algorithm);
  if (workspace_bytes < algorithm.workspace_bytes) return CUBLAS_STATUS_INVALID_VALUE;
  if (emulation::fails_now("cublasLtMatmul")) return CUBLAS_STATUS_EXECUTION_FAILED;
  const emulation::Product product{.a = question.a,
                                   .b = question.b,
                                   .c = question.c,
                                   .d = question.d,
                                   .a_transposed = question.a_transposed,
                                   .b_transposed = question.b_transposed,
                                   .alpha = *static_cast<const float*>(alpha),
                                   .beta = *static_cast<const float*>(beta),
                                   .a_data = a,
                                   .b_data = b,
                                   .c_data = c,
                                   .bias = question.bias ? operation.bias : nullptr,
                                   .d_data = d,
                                   .parts = algorithm.parts,
                                   .round_parts = algorithm.round_parts,
                                   .workspace = workspace,
                                   .workspace_bytes = algorithm.workspace_bytes};
  check_call(question, product, algorithm);
  check_apart(question, product);
  emulation::enqueue(stream, "cublasLtMatmul", [product] { compute(product); });
  return CUBLAS_STATUS_SUCCESS;
}

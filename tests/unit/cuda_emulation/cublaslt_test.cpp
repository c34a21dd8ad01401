// What a device would not forgive in a call of cuBLASLt ends the process; what the library refuses is a
// status.
#include "support/cuda_emulation/cublaslt.h"

#include <cublasLt.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>

#include "support/cuda_emulation/cublaslt_product.h"

namespace cuda_emulation {
namespace {

const std::byte* address(std::uintptr_t value) {
  return reinterpret_cast<const std::byte*>(value);
}

// d (8 x 4) = a (8 x 16) b (16 x 4) + bias, in bf16, as a test may bend it. Nothing lies at the addresses: a
// violation is found before they are used.
struct Call {
  cudaDataType_t type = CUDA_R_16BF, result_type = CUDA_R_16BF;
  std::int64_t leading = 8;  // of a and d
  std::uint64_t workspace_limit = 1 << 20, workspace_bytes = 1 << 20;
  const std::byte* a = address(0x10000);
  const std::byte* b = address(0x20000);
  const std::byte* bias = address(0x30000);
  const std::byte* d = address(0x40000);
  const std::byte* workspace = address(0x50000);
  bool any_algorithm = true;
  cublasLtMatmulAlgo_t* algorithm_of_another = nullptr;

  Call() {
    cublasLtCreate(&handle);
    cublasLtMatmulDescCreate(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    cublasLtMatmulPreferenceCreate(&limits);
    const std::uint32_t epilogue = CUBLASLT_EPILOGUE_BIAS;
    cublasLtMatmulDescSetAttribute(operation, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue);
  }
  ~Call() {
    cublasLtMatmulPreferenceDestroy(limits);
    cublasLtMatmulDescDestroy(operation);
    cublasLtDestroy(handle);
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  // The status of the choice, or of the call when there was a choice.
  cublasStatus_t run() {
    std::array<cublasLtMatrixLayout_t, 3> layouts{};
    cublasLtMatrixLayoutCreate(&layouts[0], type, 8, 16, leading);
    cublasLtMatrixLayoutCreate(&layouts[1], type, 16, 4, 16);
    cublasLtMatrixLayoutCreate(&layouts[2], result_type, 8, 4, leading);
    cublasStatus_t status = choose(layouts);
    if (status == CUBLAS_STATUS_SUCCESS) status = multiply(layouts);
    for (const cublasLtMatrixLayout_t layout : layouts) cublasLtMatrixLayoutDestroy(layout);
    return status;
  }

  cublasLtHandle_t handle = nullptr;
  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatmulPreference_t limits = nullptr;
  cublasLtMatmulHeuristicResult_t found{};

 private:
  using Layouts = std::array<cublasLtMatrixLayout_t, 3>;
  void set_bias(const void* at) {
    cublasLtMatmulDescSetAttribute(operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &at, sizeof at);
  }
  cublasStatus_t choose(const Layouts& of) {
    set_bias(address(0x30000));
    cublasLtMatmulPreferenceSetAttribute(limits, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace_limit,
                                         sizeof workspace_limit);
    int count = 0;
    return cublasLtMatmulAlgoGetHeuristic(handle, operation, of[0], of[1], of[2], of[2], limits, 1, &found,
                                          &count);
  }
  cublasStatus_t multiply(const Layouts& of) {
    set_bias(bias);
    const float one = 1, zero = 0;
    const cublasLtMatmulAlgo_t* algorithm =
        algorithm_of_another != nullptr ? algorithm_of_another : &found.algo;
    auto* result = const_cast<std::byte*>(d);
    return cublasLtMatmul(handle, operation, &one, a, of[0], b, of[1], &zero, result, of[2], result, of[2],
                          any_algorithm ? algorithm : nullptr, const_cast<std::byte*>(workspace),
                          workspace_bytes, nullptr);
  }
};

class CublasLtViolations : public ::testing::Test {
 protected:
  CublasLtViolations() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};
constexpr auto violation_of = [](Call& call, const char* message) {
  EXPECT_EXIT(call.run(), ::testing::ExitedWithCode(86), message);
};

TEST_F(CublasLtViolations, an_operand_less_aligned_than_promised) {
  Call a, b, d, bias;
  a.a += 128;
  violation_of(a, "A at 0x10080 is not aligned to the 256 bytes");
  b.b += 64;
  violation_of(b, "B at 0x20040 is not aligned");
  d.d += 2;
  violation_of(d, "C at 0x40002 is not aligned");
  bias.bias += 16;
  violation_of(bias, "the bias at 0x30010 is not aligned");
}

TEST_F(CublasLtViolations, an_algorithm_chosen_for_another_product_or_left_to_the_call) {
  Call other, call;
  other.leading = 24;
  other.workspace_bytes = 0;  // refused: only the choice is wanted
  ASSERT_EQ(other.run(), CUBLAS_STATUS_INVALID_VALUE);
  call.algorithm_of_another = &other.found.algo;
  violation_of(call, "the algorithm was chosen for another product");
  Call without;
  without.any_algorithm = false;
  violation_of(without, "the algorithm would be chosen by the operands' addresses");
}

TEST_F(CublasLtViolations, a_bias_or_a_workspace_that_is_nowhere_or_not_aligned) {
  Call bias, workspace;
  bias.bias = nullptr;
  violation_of(bias, "the bias to add is at address 0");
  workspace.workspace += 64;
  violation_of(workspace, "the workspace at 0x50040 is not aligned to the 256 bytes");
}

TEST_F(CublasLtViolations, a_result_or_a_workspace_that_lies_over_an_operand) {
  Call a, b, bias, workspace;
  a.d = a.a;
  violation_of(a, "A and the result overlap");
  b.d = b.b;
  violation_of(b, "B and the result overlap");
  bias.bias = bias.d;
  violation_of(bias, "the bias and the result overlap");
  workspace.workspace = workspace.d;
  violation_of(workspace, "the result and the workspace overlap");
}

TEST_F(CublasLtViolations, a_descriptor_used_after_its_end) {
  Call call;
  const auto use_late = [&call] {
    cublasLtMatmulPreferenceDestroy(call.limits);
    call.run();
  };
  EXPECT_EXIT(use_late(), ::testing::ExitedWithCode(86), "use of a cuBLASLt object that does not live");
}

TEST(CublasLtEmulation, refuses_what_the_library_does_not_multiply_and_a_workspace_too_small) {
  Call types, leading, workspace;
  types.type = CUDA_R_32F;
  EXPECT_EQ(types.run(), CUBLAS_STATUS_NOT_SUPPORTED);
  leading.leading = 7;
  EXPECT_EQ(leading.run(), CUBLAS_STATUS_INVALID_VALUE);
  workspace.workspace_bytes = 0;
  EXPECT_EQ(workspace.run(), CUBLAS_STATUS_INVALID_VALUE);
}

TEST(CublasLtEmulation, columns_of_one_matrix_do_not_overlap_unless_they_share_a_byte) {
  const MatrixLayout left{CUDA_R_16BF, 8, 5, 24}, packed{CUDA_R_16BF, 24, 5, 24};
  const auto* whole = address(0x10000);
  EXPECT_FALSE(overlap(left, whole, left, whole + 16));
  EXPECT_FALSE(overlap(left, whole + 16, left, whole));
  EXPECT_TRUE(overlap(left, whole, left, whole + 14));
  EXPECT_TRUE(overlap(left, whole, packed, whole + 4 * 48 + 15));
  EXPECT_FALSE(overlap(left, whole, packed, whole + 4 * 48 + 16));
}

}  // namespace
}  // namespace cuda_emulation

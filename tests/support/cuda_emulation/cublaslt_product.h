// The arithmetic of an emulated cublasLtMatmul, and the memory it touches.
#pragma once

#include <cuda_runtime_api.h>
#include <library_types.h>

#include <cstddef>
#include <cstdint>

namespace cuda_emulation {

// Column-major.
struct MatrixLayout {
  cudaDataType_t type = CUDA_R_32F;
  std::int64_t rows = 0, columns = 0, leading = 0;
  bool operator==(const MatrixLayout&) const = default;
};
std::size_t size_of(cudaDataType_t type);  // 0: not emulated

// d = alpha op(a) op(b) + beta c + bias. The sum over k is cut in `parts` that are added in order.
struct Product {
  MatrixLayout a, b, c, d;
  bool a_transposed = false, b_transposed = false;
  float alpha = 1, beta = 0;
  const void* a_data = nullptr;
  const void* b_data = nullptr;
  const void* c_data = nullptr;
  const void* bias = nullptr;  // of d's type, one a row
  void* d_data = nullptr;
  std::int64_t parts = 1;
  bool round_parts = false;  // to d's type
  void* workspace = nullptr;
  std::size_t workspace_bytes = 0;  // written, and worth nothing afterwards
};

// On the stream. The same bits wherever the operands lie and however many threads there are.
void compute(const Product& product);

// Whether any element of `d` shares a byte with an element of `other`.
bool overlap(const MatrixLayout& d, const void* d_data, const MatrixLayout& other, const void* other_data);

}  // namespace cuda_emulation

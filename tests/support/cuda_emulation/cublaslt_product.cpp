#include "support/cuda_emulation/cublaslt_product.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <dnnl.h>
#include <omp.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "support/cuda_emulation/runtime.h"

namespace cuda_emulation {
namespace {

struct Free {
  void operator()(float* memory) const { std::free(memory); }
};
// Packed column-major, 64-byte aligned wherever the operand lay.
using Floats = std::unique_ptr<float[], Free>;
Floats floats(std::int64_t numel) {
  return Floats(static_cast<float*>(
      std::aligned_alloc(64, (static_cast<std::size_t>(numel) * sizeof(float) + 63) / 64 * 64)));
}

float load(const std::byte* at, cudaDataType_t type) {
  if (type == CUDA_R_16BF) return __bfloat162float(*reinterpret_cast<const __nv_bfloat16*>(at));
  if (type == CUDA_R_16F) return __half2float(*reinterpret_cast<const __half*>(at));
  return *reinterpret_cast<const float*>(at);
}
void store(std::byte* at, cudaDataType_t type, float value) {
  if (type == CUDA_R_16BF)
    *reinterpret_cast<__nv_bfloat16*>(at) = __float2bfloat16_rn(value);
  else if (type == CUDA_R_16F)
    *reinterpret_cast<__half*>(at) = __float2half_rn(value);
  else
    *reinterpret_cast<float*>(at) = value;
}
float rounded(float value, cudaDataType_t type) {
  alignas(float) std::byte bytes[sizeof(float)];
  store(bytes, type, value);
  return load(bytes, type);
}

// Calls visit(first element, bytes' offset, elements) for each run of elements without a gap.
template <class Visit>
void for_each_run(const MatrixLayout& m, const Visit& visit) {
  const bool packed = m.leading == m.rows || m.columns == 1;
  const std::int64_t runs = packed ? 1 : m.columns, numel = packed ? m.rows * m.columns : m.rows;
  for (std::int64_t r = 0; r < runs; ++r)
    visit(r * numel, static_cast<std::size_t>(r * m.leading) * size_of(m.type), numel);
}

Floats gather(const MatrixLayout& m, const void* data) {
  Floats values = floats(m.rows * m.columns);
  const std::size_t size = size_of(m.type);
  for_each_run(m, [&](std::int64_t first, std::size_t offset, std::int64_t numel) {
    const auto* from = static_cast<const std::byte*>(
        readable(static_cast<const std::byte*>(data) + offset, static_cast<std::size_t>(numel) * size));
    for (std::int64_t i = 0; i < numel; ++i)
      values[static_cast<std::size_t>(first + i)] = load(from + static_cast<std::size_t>(i) * size, m.type);
  });
  return values;
}

void scatter(const Floats& values, const MatrixLayout& m, void* data) {
  const std::size_t size = size_of(m.type);
  for_each_run(m, [&](std::int64_t first, std::size_t offset, std::int64_t numel) {
    auto* to = static_cast<std::byte*>(
        writable(static_cast<std::byte*>(data) + offset, static_cast<std::size_t>(numel) * size));
    for (std::int64_t i = 0; i < numel; ++i)
      store(to + static_cast<std::size_t>(i) * size, m.type, values[static_cast<std::size_t>(first + i)]);
  });
}

// oneDNN chooses its blocking, and with it the order of sums, by the number of threads.
class OneThread {
 public:
  OneThread() : before_(omp_get_max_threads()) { omp_set_num_threads(1); }
  ~OneThread() { omp_set_num_threads(before_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_;
};

// sum = op(a) op(b) over [first, first + terms) of k. oneDNN is row-major: it is given the transposed
// product.
void multiply(const Product& p, const float* a, const float* b, std::int64_t first, std::int64_t terms,
              float* sum) {
  const OneThread one_thread;
  const float* a_part = a + (p.a_transposed ? first : first * p.a.rows);
  const float* b_part = b + (p.b_transposed ? first * p.b.rows : first);
  if (dnnl_sgemm(p.b_transposed ? 'T' : 'N', p.a_transposed ? 'T' : 'N', p.d.columns, p.d.rows, terms, 1.0f,
                 b_part, p.b.rows, a_part, p.a.rows, 0.0f, sum, p.d.rows) != dnnl_success)
    violation("oneDNN refuses a product");
}

Floats sum_of_products(const Product& p) {
  const Floats a = gather(p.a, p.a_data), b = gather(p.b, p.b_data);
  const std::int64_t k = p.a_transposed ? p.a.rows : p.a.columns, numel = p.d.rows * p.d.columns;
  Floats sum = floats(numel), part = floats(numel);
  std::fill_n(sum.get(), numel, 0.0f);
  for (std::int64_t i = 0; i < p.parts; ++i) {
    const std::int64_t first = k * i / p.parts, end = k * (i + 1) / p.parts;
    if (first == end) continue;
    multiply(p, a.get(), b.get(), first, end - first, part.get());
    for (std::size_t at = 0; at < static_cast<std::size_t>(numel); ++at)
      sum[at] += p.round_parts ? rounded(part[at], p.d.type) : part[at];
  }
  return sum;
}

void add_bias(const Product& p, const Floats& sum) {
  const Floats bias = gather({p.d.type, p.d.rows, 1, p.d.rows}, p.bias);
  const auto rows = static_cast<std::size_t>(p.d.rows);
  for (std::size_t at = 0; at < rows * static_cast<std::size_t>(p.d.columns); ++at)
    sum[at] += bias[at % rows];
}

}  // namespace

std::size_t size_of(cudaDataType_t type) {
  if (type == CUDA_R_32F) return 4;
  return type == CUDA_R_16BF || type == CUDA_R_16F ? 2 : 0;
}

void compute(const Product& p) {
  if (p.workspace_bytes > 0) std::memset(writable(p.workspace, p.workspace_bytes), 0xff, p.workspace_bytes);
  const Floats sum = sum_of_products(p);
  const auto numel = static_cast<std::size_t>(p.d.rows * p.d.columns);
  for (std::size_t at = 0; at < numel; ++at) sum[at] *= p.alpha;
  if (p.beta != 0) {
    const Floats before = gather(p.c, p.c_data);
    for (std::size_t at = 0; at < numel; ++at) sum[at] += p.beta * before[at];
  }
  if (p.bias != nullptr) add_bias(p, sum);
  scatter(sum, p.d, p.d_data);
}

bool overlap(const MatrixLayout& d, const void* d_data, const MatrixLayout& other, const void* other_data) {
  const auto base = [](const void* data) { return reinterpret_cast<std::uintptr_t>(data); };
  const auto step = [](const MatrixLayout& m) {
    return static_cast<std::uintptr_t>(m.leading) * size_of(m.type);
  };
  const auto length = [](const MatrixLayout& m) {
    return static_cast<std::uintptr_t>(m.rows) * size_of(m.type);
  };
  // Both matrices' columns in the order of their addresses.
  std::int64_t mine = 0, theirs = 0;
  std::uintptr_t at = base(d_data), other_at = base(other_data);
  while (mine < d.columns && theirs < other.columns) {
    if (at < other_at + length(other) && other_at < at + length(d)) return true;
    if (at < other_at)
      at += step(d), ++mine;
    else
      other_at += step(other), ++theirs;
  }
  return false;
}

}  // namespace cuda_emulation

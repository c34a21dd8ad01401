// The seam of a model's operations on device memory, forward and backward, each enqueued on the compute lane.
// Implemented by src/model for a device whose memory the host addresses, and by gpu for CUDA.
//
// Threads: one owner thread calls; nothing blocks. Memory named in a call stays valid until the lane has
// passed it. Scratch memory is pushed on DeviceMemory's stack (workspace) and popped before the call returns:
// the lane runs in order, so the next operation may use it again.
//
// Results do not depend on the number of threads: sums run in fixed pieces that are combined in a fixed
// order. Sums are fp32 and rounded once to the type of the result.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "headrace/attention_shape.h"
#include "headrace/device.h"
#include "headrace/dtype.h"
#include "headrace/memory.h"

namespace headrace {

// Row-major; row r starts at data + r * stride elements.
struct Matrix {
  std::byte* data = nullptr;
  DType dtype = DType::f32;
  std::int64_t rows = 0, columns = 0, stride = 0;
};
Matrix matrix(std::byte* data, DType dtype, std::int64_t rows, std::int64_t columns);  // stride = columns
Matrix row_range(const Matrix& whole, std::int64_t first, std::int64_t rows);

enum class Transpose : std::uint8_t { none, a, b };

// A layer norm: y = (x - mean) * rstd * scale + shift. An RMS norm has neither mean nor shift.
struct NormArguments {
  Matrix x;                    // contiguous, as all of these
  std::byte* delta = nullptr;  // when given, sum = x + delta and the sum is normalised
  std::byte* sum = nullptr;
  const std::byte* scale = nullptr;  // of x's type, like shift
  const std::byte* shift = nullptr;
  std::byte* y = nullptr;
  float* mean = nullptr;  // one a row, like rstd
  float* rstd = nullptr;
  float epsilon = 1e-5f;  // added to the variance, or to the mean square, before its root
};

struct NormBackwardArguments {
  Matrix dy;
  const std::byte* x = nullptr;  // what was normalised
  const std::byte* scale = nullptr;
  const float* mean = nullptr;
  const float* rstd = nullptr;
  std::byte* dx = nullptr;
  bool add_to_dx = false;  // dx += instead of dx =
  std::byte* dscale = nullptr;
  std::byte* dshift = nullptr;
};

// Token ids of a micro-batch in device memory: batch x (sequence + 1), input and shifted target.
struct TokenBatch {
  const std::int32_t* ids = nullptr;
  std::int64_t batch = 0, sequence = 0, vocabulary = 0;
};

struct CrossEntropyArguments {
  const float* logits = nullptr;  // rows x vocabulary
  TokenBatch tokens;
  std::int64_t first_row = 0, rows = 0;  // of the batch * sequence predictions
  double* losses = nullptr;              // batch * sequence, or null
  std::byte* dlogits = nullptr;          // rows x vocabulary of `dtype`, or null
  DType dtype = DType::f32;
  float gradient_factor = 1.0f;  // dlogits = (softmax - one-hot) * factor
};

class Ops {
 public:
  virtual ~Ops() = default;

  // c = a b (+ bias, one a column, of a's type), one of a and b transposed or neither; accumulate: c +=
  // instead. a and b have one type; c has it too or is fp32.
  virtual void matmul(const Matrix& a, const Matrix& b, Transpose transpose, const std::byte* bias,
                      const Matrix& c, bool accumulate = false) = 0;
  // sums[c] = sum of x's column c, of x's type.
  virtual void column_sums(const Matrix& x, std::byte* sums) = 0;

  virtual void layer_norm(const NormArguments& arguments) = 0;
  virtual void layer_norm_backward(const NormBackwardArguments& arguments) = 0;
  virtual void rms_norm(const NormArguments& arguments) = 0;
  virtual void rms_norm_backward(const NormBackwardArguments& arguments) = 0;

  // GELU by its tanh approximation. backward: dy becomes dx, y = gelu(x) again.
  virtual void gelu(const Matrix& x, std::byte* y) = 0;
  virtual void gelu_backward(const Matrix& x, std::byte* dy, std::byte* y) = 0;
  // y = silu(gate) * up, silu(x) = x * sigmoid(x); a row of `hidden` is those of gate and up, side by side.
  // backward: hidden becomes its gradient, and dy becomes y again.
  virtual void swiglu(const Matrix& hidden, std::byte* y) = 0;
  virtual void swiglu_backward(const Matrix& hidden, std::byte* dy) = 0;
  virtual void add(const Matrix& a, const std::byte* b, std::byte* sum) = 0;

  // Causal. log_sums: batch x heads x sequence fp32, kept for backward, which computes the probabilities
  // again.
  virtual void attention(const AttentionShape& shape, const std::byte* qkv, std::byte* output,
                         float* log_sums) = 0;
  virtual void attention_backward(const AttentionShape& shape, const std::byte* qkv, const std::byte* output,
                                  const std::byte* doutput, const float* log_sums, std::byte* dqkv) = 0;

  // Forward alone, of the rows behind those that the cache holds: their keys and values are put into it, and
  // each row attends to itself and to all before it.
  virtual void cached_attention(const AttentionShape& shape, const std::byte* qkv, const KeyValueCache& cache,
                                std::byte* output) = 0;

  // Rotary positions, in place: elements i of the first and of the second half of each query and key head are
  // turned, as a pair, by position * theta^(-2 i / depth); a sample's rows are at first_position and on.
  // backward turns gradients back.
  virtual void rotary(const AttentionShape& shape, float theta, std::byte* qkv,
                      std::int64_t first_position) = 0;
  virtual void rotary_backward(const AttentionShape& shape, float theta, std::byte* dqkv) = 0;

  // x = token row + position row; without the latter where its table has no rows. An id outside the
  // vocabulary is an error on the lane.
  virtual void embedding(const TokenBatch& tokens, const Matrix& token_table, const Matrix& position_table,
                         std::byte* x) = 0;
  // dtoken = tied_gradient (fp32, may be null) + the rows of dx; dposition likewise; both summed in fp32,
  // rounded once.
  virtual void embedding_backward(const TokenBatch& tokens, const std::byte* dx, const float* tied_gradient,
                                  const Matrix& dtoken, const Matrix& dposition) = 0;

  virtual void cross_entropy(const CrossEntropyArguments& arguments) = 0;
  // *mean (host memory) = the mean of `count` losses, summed in order in fp64.
  virtual void mean_loss(const double* losses, std::int64_t count, float* mean) = 0;
  virtual void round_to(const float* high, std::byte* low, DType dtype, std::int64_t numel) = 0;
};

// On a device that executes nothing (measure_model_memory), an implementation takes its scratch memory and
// does no work.
using OpsFactory = std::function<std::unique_ptr<Ops>(Device& device, DeviceMemory& memory)>;
std::unique_ptr<Ops> make_cpu_ops(Device& device, DeviceMemory& memory);
// Throws UsageError saying how to get it when built without CUDA.
std::unique_ptr<Ops> make_cuda_ops(Device& device, DeviceMemory& memory);

}  // namespace headrace

// The operations on a device whose memory the host can address: products through oneDNN, the passes between
// them through row_kernels.h, both cut in fixed pieces that the threads of the CPU pool take.
#pragma once

#include <functional>

#include "headrace/ops.h"
#include "src/model/gemm.h"
#include "src/model/stack_scope.h"

namespace headrace {

class CpuOps final : public Ops {
 public:
  CpuOps(Device& device, DeviceMemory& memory, bool native_bf16 = cpu_has_bf16_gemm());

  void matmul(const Matrix& a, const Matrix& b, Transpose transpose, const std::byte* bias, const Matrix& c,
              bool accumulate) override;
  void column_sums(const Matrix& x, std::byte* sums) override;
  void layer_norm(const NormArguments& arguments) override;
  void layer_norm_backward(const NormBackwardArguments& arguments) override;
  void rms_norm(const NormArguments& arguments) override;
  void rms_norm_backward(const NormBackwardArguments& arguments) override;
  void gelu(const Matrix& x, std::byte* y) override;
  void gelu_backward(const Matrix& x, std::byte* dy, std::byte* y) override;
  void swiglu(const Matrix& hidden, std::byte* y) override;
  void swiglu_backward(const Matrix& hidden, std::byte* dy) override;
  void add(const Matrix& a, const std::byte* b, std::byte* sum) override;
  void attention(const AttentionShape& shape, const std::byte* qkv, std::byte* output,
                 float* log_sums) override;
  void attention_backward(const AttentionShape& shape, const std::byte* qkv, const std::byte* output,
                          const std::byte* doutput, const float* log_sums, std::byte* dqkv) override;
  void cached_attention(const AttentionShape& shape, const std::byte* qkv, const KeyValueCache& cache,
                        std::byte* output) override;
  void rotary(const AttentionShape& shape, float theta, std::byte* qkv, std::int64_t first_position) override;
  void rotary_backward(const AttentionShape& shape, float theta, std::byte* dqkv) override;
  void embedding(const TokenBatch& tokens, const Matrix& token_table, const Matrix& position_table,
                 std::byte* x) override;
  void embedding_backward(const TokenBatch& tokens, const std::byte* dx, const float* tied_gradient,
                          const Matrix& dtoken, const Matrix& dposition) override;
  void cross_entropy(const CrossEntropyArguments& arguments) override;
  void mean_loss(const double* losses, std::int64_t count, float* mean) override;
  void round_to(const float* high, std::byte* low, DType dtype, std::int64_t numel) override;

 private:
  // Enqueues body(begin, end, thread) for each [k * grain, (k + 1) * grain) of [0, count), the pieces shared
  // by the threads.
  using PieceBody = std::function<void(std::int64_t begin, std::int64_t end, int thread)>;
  void enqueue_pieces(const char* name, std::int64_t count, std::int64_t grain, PieceBody body);
  // Scratch memory of `bytes` for each thread; thread t's starts at the result + t * round_up(bytes, 64).
  std::byte* push_scratch(Bytes bytes_per_thread);

  // direction: 1, or -1 to turn back.
  void turn(const char* name, const AttentionShape& shape, float theta, float direction, std::byte* qkv,
            std::int64_t first_position);

  Device& device_;
  DeviceMemory& memory_;
  int threads_;
  GemmCache gemms_;
};

}  // namespace headrace

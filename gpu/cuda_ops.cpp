// The operations of a model on the compute lane of a CUDA device: products through cuBLASLt, the rest through
// the kernels of this folder.
#include "gpu/attention_kernels.h"
#include "gpu/cross_entropy_kernels.h"
#include "gpu/cuda_device.h"
#include "gpu/elementwise_kernels.h"
#include "gpu/embedding_kernels.h"
#include "gpu/gemm.h"
#include "gpu/key_value_cache.h"
#include "gpu/norm_kernels.h"
#include "gpu/optimizer_kernels.h"
#include "gpu/rotary_kernels.h"
#include "gpu/scratch.h"
#include "gpu/token_kernels.h"
#include "headrace/errors.h"
#include "headrace/ops.h"

namespace headrace {
namespace {

void check_head_depth(const AttentionShape& shape) {
  const std::int64_t depth = shape.depth();
  if (depth > largest_head_depth)
    throw UsageError(
        fmt::format("heads of width {}: attention on a CUDA device takes up to {}. Use more heads, or "
                    "--device cpu.",
                    depth, largest_head_depth));
}

RotaryArguments rotary_arguments(const AttentionShape& shape, float theta, std::byte* qkv,
                                 std::int64_t first_position = 0) {
  return {.qkv = qkv,
          .dtype = shape.dtype,
          .batch = shape.batch,
          .sequence = shape.sequence,
          .heads = shape.heads,
          .key_heads = shape.key_heads,
          .depth = shape.depth(),
          .theta = theta,
          .first_position = first_position};
}

class CudaOps final : public Ops {
 public:
  CudaOps(Device& device, DeviceMemory& memory)
      : device_(device),
        memory_(memory),
        gemm_(memory.persistent(MemoryTag::workspace, CudaGemm::workspace_bytes), CudaGemm::workspace_bytes) {
    if (CudaDevice* const cuda = as_cuda_device(device)) {
      queue_ = &cuda->queue(Lane::compute);
      fault_ = cuda->fault_word();
    }
  }

  void matmul(const Matrix& a, const Matrix& b, Transpose transpose, const std::byte* bias, const Matrix& c,
              bool accumulate) override {
    gemm_.run(*queue_,
              {.a = a, .b = b, .transpose = transpose, .bias = bias, .c = c, .accumulate = accumulate});
  }
  void column_sums(const Matrix& x, std::byte* sums) override {
    const Scratch scratch(memory_, column_sums_scratch_bytes(x.rows, x.columns));
    headrace::column_sums(*queue_, x, sums, scratch.floats());
  }

  void layer_norm(const NormArguments& arguments) override { headrace::layer_norm(*queue_, arguments); }
  void layer_norm_backward(const NormBackwardArguments& arguments) override {
    const Scratch scratch(memory_,
                          layer_norm_backward_scratch_bytes(arguments.dy.rows, arguments.dy.columns));
    headrace::layer_norm_backward(*queue_, arguments, scratch.floats());
  }

  void rms_norm(const NormArguments& arguments) override { headrace::rms_norm(*queue_, arguments); }
  void rms_norm_backward(const NormBackwardArguments& arguments) override {
    const Scratch scratch(memory_, rms_norm_backward_scratch_bytes(arguments.dy.rows, arguments.dy.columns));
    headrace::rms_norm_backward(*queue_, arguments, scratch.floats());
  }

  void gelu(const Matrix& x, std::byte* y) override { headrace::gelu(*queue_, x, y); }
  void gelu_backward(const Matrix& x, std::byte* dy, std::byte* y) override {
    headrace::gelu_backward(*queue_, x, dy, y);
  }
  void swiglu(const Matrix& hidden, std::byte* y) override { headrace::swiglu(*queue_, hidden, y); }
  void swiglu_backward(const Matrix& hidden, std::byte* dy) override {
    headrace::swiglu_backward(*queue_, hidden, dy);
  }
  void add(const Matrix& a, const std::byte* b, std::byte* sum) override {
    headrace::add(*queue_, a, b, sum);
  }

  void attention(const AttentionShape& shape, const std::byte* qkv, std::byte* output,
                 float* log_sums) override {
    check_head_depth(shape);
    headrace::attention(*queue_, shape, qkv, output, log_sums);
  }
  void attention_backward(const AttentionShape& shape, const std::byte* qkv, const std::byte* output,
                          const std::byte* doutput, const float* log_sums, std::byte* dqkv) override {
    check_head_depth(shape);
    const Scratch scratch(memory_, attention_backward_scratch_bytes(shape));
    headrace::attention_backward(*queue_, {.shape = shape,
                                           .qkv = qkv,
                                           .output = output,
                                           .doutput = doutput,
                                           .log_sums = log_sums,
                                           .dqkv = dqkv,
                                           .scratch = scratch.floats()});
  }

  void cached_attention(const AttentionShape& shape, const std::byte* qkv, const KeyValueCache& cache,
                        std::byte* output) override {
    check_head_depth(shape);
    append_to_cache(*queue_, shape, qkv, cache);
    headrace::cached_attention(*queue_, shape, qkv, cache, output);
  }

  void rotary(const AttentionShape& shape, float theta, std::byte* qkv,
              std::int64_t first_position) override {
    headrace::rotary(*queue_, rotary_arguments(shape, theta, qkv, first_position));
  }
  void rotary_backward(const AttentionShape& shape, float theta, std::byte* dqkv) override {
    headrace::rotary_backward(*queue_, rotary_arguments(shape, theta, dqkv));
  }

  void embedding(const TokenBatch& tokens, const Matrix& token_table, const Matrix& position_table,
                 std::byte* x) override {
    check_tokens(*queue_, {.tokens = tokens, .rows = tokens.batch * tokens.sequence, .fault = fault_});
    headrace::embedding(
        *queue_, {.tokens = tokens, .token_table = token_table, .position_table = position_table, .x = x});
  }
  void embedding_backward(const TokenBatch& tokens, const std::byte* dx, const float* tied_gradient,
                          const Matrix& dtoken, const Matrix& dposition) override {
    const Scratch scratch(memory_, embedding_backward_scratch_bytes(tokens));
    headrace::embedding_backward(*queue_, {.tokens = tokens,
                                           .dx = dx,
                                           .tied_gradient = tied_gradient,
                                           .dtoken = dtoken,
                                           .dposition = dposition,
                                           .scratch = scratch.data()});
  }

  void cross_entropy(const CrossEntropyArguments& arguments) override {
    check_tokens(*queue_, {.tokens = arguments.tokens,
                           .first_row = arguments.first_row,
                           .rows = arguments.rows,
                           .targets = true,
                           .fault = fault_});
    headrace::cross_entropy(*queue_, arguments);
  }
  void mean_loss(const double* losses, std::int64_t count, float* mean) override {
    const Scratch scratch(memory_, sizeof(float));
    headrace::mean(*queue_, losses, count, scratch.floats());
    device_.copy(Lane::compute, mean, scratch.data(), sizeof(float));
  }
  void round_to(const float* high, std::byte* low, DType dtype, std::int64_t numel) override {
    headrace::round_to(*queue_, high, low, dtype, static_cast<std::uint64_t>(numel));
  }

 private:
  Device& device_;
  DeviceMemory& memory_;
  KernelQueue* queue_ = &idle_queue();  // of a device that executes nothing
  KernelFault* fault_ = nullptr;
  CudaGemm gemm_;
};

}  // namespace

std::unique_ptr<Ops> make_cuda_ops(Device& device, DeviceMemory& memory) {
  return std::make_unique<CudaOps>(device, memory);
}

}  // namespace headrace

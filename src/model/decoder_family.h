// What makes a family of decoders: its units and what is computed in a block and in the final norm. The loop
// over them, the embedding, the head and the loss are the same for all (decoder.cpp, decoder_head.h).
#pragma once

#include <memory>
#include <vector>

#include "src/model/activations.h"
#include "src/model/decoder_units.h"

namespace headrace {

// One block in one micro-batch: it remembers where its forward left what backward needs.
class DecoderBlock {
 public:
  virtual ~DecoderBlock() = default;
  // Takes the memory for what backward needs, from the stack.
  virtual void push_kept() = 0;
  // Fills it from the block's input; with `output` (which may be x itself), the block's output too. With a
  // cache, the rows are at the positions behind those that it holds, and theirs are added; backward cannot
  // follow.
  virtual void forward(const FlatUnit& weights, const Matrix& x, std::byte* output,
                       const KeyValueCache* cache = nullptr) = 0;
  // `stream` holds the gradient of the output and becomes that of x. Writes every parameter's gradient. What
  // was kept is used up.
  virtual void backward(const FlatUnit& weights, const FlatUnit& gradient, const Matrix& x,
                        const Matrix& stream) = 0;
};

// The norm before the head, whose unit begins with the norm's parameters.
class FinalNorm {
 public:
  virtual ~FinalNorm() = default;
  // Takes the memory of its statistics from the stack.
  virtual void push_kept() = 0;
  virtual void forward(const FlatUnit& weights, const Matrix& x, std::byte* y) = 0;
  virtual void backward(const FlatUnit& weights, const FlatUnit& gradient, const Matrix& x, const Matrix& dy,
                        std::byte* dx) = 0;
};

class DecoderFamily {
 public:
  virtual ~DecoderFamily() = default;
  // embedding (token table, and position table where positions are learned), blocks, head
  virtual std::vector<UnitSpec> unit_specs() const = 0;
  virtual std::unique_ptr<DecoderBlock> make_block(Ops& ops, DeviceMemory& memory) const = 0;
  virtual std::unique_ptr<FinalNorm> make_final_norm(Ops& ops, DeviceMemory& memory) const = 0;
};

// Throw UsageError where the configuration or the data's shape is impossible.
std::unique_ptr<DecoderFamily> make_family(const ModelConfig& config, const ModelOptions& options);
std::unique_ptr<DecoderFamily> make_gpt2_family(const ModelConfig& config, const ModelOptions& options);
std::unique_ptr<DecoderFamily> make_llama_family(const ModelConfig& config, const ModelOptions& options);

}  // namespace headrace

// Micro-batches of token ids for tests of the kernels that read them.
#pragma once

#include <random>

#include "gpu/gpu_harness.h"
#include "headrace/ops.h"

namespace headrace::test {

struct Tokens {
  std::int64_t batch, sequence, vocabulary;
  std::vector<std::int32_t> ids;  // batch x (sequence + 1)

  std::int64_t rows() const { return batch * sequence; }
  std::size_t index(std::int64_t row) const {
    return static_cast<std::size_t>(row / sequence * (sequence + 1) + row % sequence);
  }
  std::int32_t input(std::int64_t row) const { return ids[index(row)]; }
  std::int32_t target(std::int64_t row) const { return ids[index(row) + 1]; }
  TokenBatch on(const Operand& device_ids) const {
    return {.ids = device_ids.data<std::int32_t>(),
            .batch = batch,
            .sequence = sequence,
            .vocabulary = vocabulary};
  }
};

inline Tokens random_tokens(std::int64_t batch, std::int64_t sequence, std::int64_t vocabulary) {
  Tokens tokens{batch, sequence, vocabulary, {}};
  std::mt19937 random(static_cast<std::uint32_t>(batch + 10 * sequence + 1000 * vocabulary));
  for (std::int64_t i = 0; i < batch * (sequence + 1); ++i)
    tokens.ids.push_back(static_cast<std::int32_t>(random() % static_cast<std::uint32_t>(vocabulary)));
  return tokens;
}

}  // namespace headrace::test

// Reed-Solomon over GF(2^8) by ISA-L, with the Cauchy matrix: any `data` of the data + parity pieces give all
// others. Pure; pieces may have any length and address.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "headrace/bytes.h"

namespace headrace {

class ParityCode {
 public:
  ParityCode(std::uint32_t data, std::uint32_t parity);
  std::uint32_t data() const { return data_; }
  std::uint32_t parity() const { return parity_; }

  void encode(std::span<const std::byte* const> data, std::span<std::byte* const> parity, Bytes bytes) const;

  struct Piece {
    std::uint32_t index;  // data pieces first
    std::byte* memory;
  };
  // Computes the `lost` pieces from exactly data() different others.
  void rebuild(std::span<const Piece> sources, std::span<const Piece> lost, Bytes bytes) const;

 private:
  std::uint32_t data_, parity_;
  std::vector<unsigned char> matrix_;  // row of each piece; those of data pieces are the identity
};

}  // namespace headrace

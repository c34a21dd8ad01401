#include "headrace/parity_code.h"

#include <isa-l/erasure_code.h>

#include <algorithm>

#include "headrace/errors.h"

namespace headrace {
namespace {

constexpr Bytes most_bytes_a_call = Bytes{1} << 30;  // ISA-L counts in int
constexpr std::size_t table_bytes = 32;              // ISA-L's, an element of the matrix

// out[j] = sum over i of rows[j][i] * in[i].
void multiply(const std::vector<unsigned char>& rows, std::vector<unsigned char*> in,
              std::vector<unsigned char*> out, Bytes bytes) {
  std::vector<unsigned char> tables(table_bytes * in.size() * out.size());
  ec_init_tables(static_cast<int>(in.size()), static_cast<int>(out.size()),
                 const_cast<unsigned char*>(rows.data()), tables.data());
  for (Bytes done = 0; done < bytes;) {
    const Bytes now = std::min(most_bytes_a_call, bytes - done);
    ec_encode_data(static_cast<int>(now), static_cast<int>(in.size()), static_cast<int>(out.size()),
                   tables.data(), in.data(), out.data());
    for (unsigned char*& pointer : in) pointer += now;
    for (unsigned char*& pointer : out) pointer += now;
    done += now;
  }
}

unsigned char* bytes_at(const std::byte* memory) {
  return reinterpret_cast<unsigned char*>(const_cast<std::byte*>(memory));
}

}  // namespace

ParityCode::ParityCode(std::uint32_t data, std::uint32_t parity)
    : data_(data), parity_(parity), matrix_(std::size_t{data + parity} * data) {
  HEADRACE_CHECK(data > 0 && data + parity < 256, "a code of {} data and {} parity pieces", data, parity);
  gf_gen_cauchy1_matrix(matrix_.data(), static_cast<int>(data + parity), static_cast<int>(data));
}

void ParityCode::encode(std::span<const std::byte* const> data, std::span<std::byte* const> parity,
                        Bytes bytes) const {
  HEADRACE_CHECK(data.size() == data_ && parity.size() == parity_, "{} data and {} parity pieces",
                 data.size(), parity.size());
  std::vector<unsigned char*> in, out;
  for (const std::byte* piece : data) in.push_back(bytes_at(piece));
  for (std::byte* piece : parity) out.push_back(bytes_at(piece));
  multiply({matrix_.begin() + static_cast<std::ptrdiff_t>(data_) * data_, matrix_.end()}, std::move(in),
           std::move(out), bytes);
}

void ParityCode::rebuild(std::span<const Piece> sources, std::span<const Piece> lost, Bytes bytes) const {
  HEADRACE_CHECK(sources.size() == data_, "{} pieces to rebuild from, {} are needed", sources.size(), data_);
  std::vector<unsigned char> known, inverse(std::size_t{data_} * data_), rows;
  std::vector<unsigned char*> in, out;
  for (const Piece& source : sources) {
    const auto row = matrix_.begin() + static_cast<std::ptrdiff_t>(source.index) * data_;
    known.insert(known.end(), row, row + data_);
    in.push_back(bytes_at(source.memory));
  }
  const int failed = gf_invert_matrix(known.data(), inverse.data(), static_cast<int>(data_));
  HEADRACE_CHECK(failed == 0, "pieces to rebuild from are not all different");
  for (const Piece& piece : lost) {
    const unsigned char* generator = matrix_.data() + std::size_t{piece.index} * data_;
    for (std::uint32_t column = 0; column < data_; ++column) {
      unsigned char sum = 0;
      for (std::uint32_t i = 0; i < data_; ++i)
        sum ^= gf_mul(generator[i], inverse[std::size_t{i} * data_ + column]);
      rows.push_back(sum);
    }
    out.push_back(bytes_at(piece.memory));
  }
  if (!out.empty()) multiply(rows, std::move(in), std::move(out), bytes);
}

}  // namespace headrace

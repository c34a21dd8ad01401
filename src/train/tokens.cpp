#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "headrace/data.h"
#include "headrace/errors.h"
#include "headrace/state_hash.h"

namespace headrace {
namespace {

constexpr std::uint64_t piece_numel = std::uint64_t{1} << 18;
constexpr Bytes looked_at_bytes = Bytes{1} << 30;  // of a large file, where looking at all would take minutes

[[noreturn]] void refuse(const std::string& path, std::string_view why) {
  throw UsageError(fmt::format("the data {} cannot be used: {}.", path, why));
}

std::uint32_t little_endian(const std::uint8_t* bytes, unsigned count) {
  std::uint32_t value = 0;
  for (unsigned i = count; i-- > 0;) value = value << 8 | bytes[i];
  return value;
}

struct IdFormat {
  unsigned id_bytes = 0;
  Bytes first_byte = 0;
};

// Of a file with the header, which says how many ids follow: their size tells how long one is. None: no
// header.
std::optional<IdFormat> format_by_header(const ByteCorpus& file) {
  constexpr Bytes header_bytes = 256 * sizeof(std::int32_t);
  constexpr std::uint32_t magics[] = {20240520, 20240801};  // of GPT-2's ids, of Llama 3's
  std::array<std::uint8_t, 12> start{};
  if (file.size_bytes() < header_bytes) return std::nullopt;
  file.read(0, start);
  if (std::ranges::find(magics, little_endian(start.data(), 4)) == std::end(magics)) return std::nullopt;
  const std::uint32_t version = little_endian(start.data() + 4, 4);
  if (version != 1 && version != 7)
    refuse(file.path(), fmt::format("its header is of version {}, and 1 and 7 are read", version));
  const std::uint64_t count = little_endian(start.data() + 8, 4), bytes = file.size_bytes() - header_bytes;
  for (const unsigned id_bytes : {2u, 4u})
    if (count * id_bytes == bytes && count > 0) return IdFormat{id_bytes, header_bytes};
  refuse(file.path(),
         fmt::format("its header says {} ids, and the {} bytes after it are not so many of 16 or 32 bits: "
                     "it was cut short, or it is another kind of file",
                     count, bytes));
}

IdFormat id_format(const ByteCorpus& file, int vocabulary, unsigned id_bits) {
  if (const auto format = format_by_header(file)) {
    if (id_bits != 0 && id_bits != 8 * format->id_bytes)
      refuse(file.path(), fmt::format("its header and size say ids of {} bits, and --token-bits {}",
                                      8 * format->id_bytes, id_bits));
    return *format;
  }
  const unsigned bits = id_bits != 0 ? id_bits : vocabulary <= 1 << 16 ? 16 : 32;
  if (file.size_bytes() % (bits / 8) != 0)
    refuse(file.path(),
           fmt::format(
               "its {} bytes are no whole number of ids of {} bits (--token-bits says how many they have)",
               file.size_bytes(), bits));
  return {bits / 8, 0};
}

// Ids of 32 bits that are read as if of 16 are every other one 0.
bool looks_like_32_bits(const Tokens& tokens) {
  std::vector<std::int32_t> ids(std::min<std::uint64_t>(tokens.count(), 4096));
  tokens.read(0, ids);
  if (ids.size() < 64) return false;
  bool all_zero = true;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (i % 2 == 1 && ids[i] != 0) return false;
    all_zero &= ids[i] == 0;
  }
  return !all_zero;
}

}  // namespace

Tokens Tokens::open(const std::string& path, int vocabulary, unsigned id_bits) {
  Tokens tokens(ByteCorpus::open(path));
  constexpr int byte_values = 256;
  if (!path.ends_with(".bin")) {
    if (vocabulary < byte_values)
      refuse(path,
             fmt::format(
                 "text is read as bytes, of which there are {}, and the model's vocabulary is {}. Give token "
                 "ids (FILE.bin), or a model with a larger one",
                 byte_values, vocabulary));
    return tokens;
  }
  const IdFormat format = id_format(tokens.source_, vocabulary, id_bits);
  tokens.id_bytes_ = format.id_bytes, tokens.first_byte_ = format.first_byte, tokens.vocabulary_ = vocabulary;
  std::vector<std::int32_t> piece(piece_numel);
  const std::uint64_t looked_at = std::min(tokens.count(), looked_at_bytes / format.id_bytes);
  for (std::uint64_t first = 0; first < looked_at; first += piece.size())
    tokens.read(first, std::span(piece).first(std::min<std::uint64_t>(piece.size(), looked_at - first)));
  if (format.first_byte == 0 && id_bits == 0 && format.id_bytes == 2 && looks_like_32_bits(tokens))
    refuse(path,
           "read as ids of 16 bits, every other one is 0: they seem to have 32. Say which with --token-bits");
  return tokens;
}

void Tokens::read(std::uint64_t first, std::span<std::int32_t> out) const {
  std::vector<std::uint8_t> bytes(out.size() * id_bytes_);
  source_.read(first_byte_ + first * id_bytes_, bytes);
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::uint32_t id = little_endian(bytes.data() + i * id_bytes_, id_bytes_);
    if (id >= static_cast<std::uint32_t>(vocabulary_))
      refuse(
          source_.path(),
          fmt::format("token {} (byte {}) is {}, and the model's vocabulary has {} ids: they were made for "
                      "another vocabulary, or have another number of bits (--token-bits)",
                      first + i, first_byte_ + (first + i) * id_bytes_, id, vocabulary_));
    out[i] = static_cast<std::int32_t>(id);
  }
}

std::string Tokens::fingerprint() const {
  return source_.fingerprint() + (is_text() ? "" : fmt::format(", ids of {} bits", 8 * id_bytes_));
}

SampleWindows::SampleWindows(const Tokens& tokens, std::uint64_t sequence, std::uint64_t seed)
    : key_(splitmix64(seed)) {
  if (tokens.count() < sequence + 1)
    refuse(tokens.source().path(),
           fmt::format("it holds {} {}s, but one sample of --sequence-length {} needs {}", tokens.count(),
                       tokens.noun(), sequence, sequence + 1));
  positions_ = tokens.count() - sequence;
}

std::uint64_t SampleWindows::start(std::uint64_t index) const {
  return splitmix64(key_ + index) % positions_;
}

std::uint64_t SampleWindows::even_start(std::uint64_t index, std::uint64_t count) const {
  if (count < 2) return 0;
  const double step = static_cast<double>(positions_ - 1) / static_cast<double>(count - 1);
  return std::min(static_cast<std::uint64_t>(static_cast<double>(index) * step), positions_ - 1);
}

std::vector<std::int32_t> read_samples(const Tokens& tokens, const SampleWindows& windows,
                                       std::uint64_t sequence, std::uint64_t first, std::uint64_t rows,
                                       std::uint64_t even_count) {
  std::vector<std::int32_t> samples(rows * (sequence + 1));
  for (std::uint64_t row = 0; row < rows; ++row) {
    const std::uint64_t index = first + row;
    tokens.read(even_count > 0 ? windows.even_start(index, even_count) : windows.start(index),
                std::span(samples).subspan(row * (sequence + 1), sequence + 1));
  }
  return samples;
}

double unigram_entropy_nats(const Tokens& tokens) {
  constexpr std::uint64_t sampled_numel = std::uint64_t{1} << 30;
  const std::uint64_t pieces = divide_up(tokens.count(), piece_numel);
  const std::uint64_t stride = std::max<std::uint64_t>(1, divide_up(tokens.count(), sampled_numel));
  std::vector<std::uint64_t> counts(256);
  std::uint64_t total = 0;
  std::vector<std::int32_t> buffer(piece_numel);
  for (std::uint64_t piece = 0; piece < pieces; piece += stride) {
    const std::uint64_t first = piece * piece_numel;
    const auto ids = std::span(buffer).first(std::min(piece_numel, tokens.count() - first));
    tokens.read(first, ids);
    for (const std::int32_t id : ids) {
      const auto index = static_cast<std::size_t>(id);
      if (index >= counts.size()) counts.resize(std::max(index + 1, 2 * counts.size()));
      ++counts[index];
    }
    total += ids.size();
  }
  double entropy = 0;
  for (const std::uint64_t count : counts) {
    if (count == 0) continue;
    const double p = static_cast<double>(count) / static_cast<double>(total);
    entropy -= p * std::log(p);
  }
  return entropy;
}

}  // namespace headrace

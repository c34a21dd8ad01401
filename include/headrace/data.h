// Text as byte tokens (0-255), or a file of token ids, read in windows: the samples of a run are a function
// of (seed, sample index) alone, so a batch does not depend on the world size.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "headrace/bytes.h"

namespace headrace {

// A file, or every regular file below a folder in sorted order, as one sequence of bytes. Nothing is kept in
// memory but the list of files. Thread-compatible: const calls may run at the same time.
class ByteCorpus {
 public:
  // UsageError when the path is missing, unreadable or empty.
  static ByteCorpus open(const std::string& path);
  const std::string& path() const { return path_; }
  Bytes size_bytes() const { return total_bytes_; }
  std::size_t file_count() const { return files_.size(); }
  // Fills `out` from `offset` on. Error naming the file when it cannot be read or has become shorter.
  void read(std::uint64_t offset, std::span<std::uint8_t> out) const;
  // Tells this text from another: its size, and a hash of all of it, or of 16 MiB spread evenly over a
  // larger one.
  std::string fingerprint() const;

 private:
  struct File {
    std::string path;
    std::uint64_t first = 0;  // offset of its first byte in the corpus
    Bytes bytes = 0;
  };
  std::string path_;
  std::vector<File> files_;
  Bytes total_bytes_ = 0;
};

// The tokens of a run: the bytes of a text, or the ids that a file NAME.bin holds end to end, in 16 or 32
// bits each, little-endian, with or without a header of 256 int32 (as llm.c writes it: a magic number, a
// version, the number of ids). Const calls may run at the same time.
class Tokens {
 public:
  // `id_bits` of a file without a header, 16 or 32; 0: 16 where the vocabulary has no more ids. UsageError
  // where the file is not what its header or its size say, or where an id of its first GiB is not below
  // `vocabulary`.
  static Tokens open(const std::string& path, int vocabulary, unsigned id_bits = 0);
  Tokens(ByteCorpus text) : source_(std::move(text)) {}  // NOLINT: a text is tokens as it is
  const ByteCorpus& source() const { return source_; }
  bool is_text() const { return id_bytes_ == 1; }
  std::string_view noun() const { return is_text() ? "byte" : "token"; }
  std::uint64_t count() const { return (source_.size_bytes() - first_byte_) / id_bytes_; }
  // Ids [first, first + out.size()). Error with the place where one is not below the vocabulary.
  void read(std::uint64_t first, std::span<std::int32_t> out) const;
  std::string fingerprint() const;

 private:
  ByteCorpus source_;
  unsigned id_bytes_ = 1;
  Bytes first_byte_ = 0;
  int vocabulary_ = 256;
};

// Where samples of `sequence` + 1 tokens start.
class SampleWindows {
 public:
  // UsageError when there are fewer tokens than one window.
  SampleWindows(const Tokens& tokens, std::uint64_t sequence, std::uint64_t seed);
  // Training: the start of sample `index`, uniform over the corpus by a counter-based hash.
  std::uint64_t start(std::uint64_t index) const;
  // Evaluation: sample `index` of `count`, evenly spaced.
  std::uint64_t even_start(std::uint64_t index, std::uint64_t count) const;

 private:
  std::uint64_t positions_, key_;
};

// Rows [first, first + rows) of training samples (or of `even_count` evenly spaced ones), each sequence + 1
// tokens.
std::vector<std::int32_t> read_samples(const Tokens& tokens, const SampleWindows& windows,
                                       std::uint64_t sequence, std::uint64_t first, std::uint64_t rows,
                                       std::uint64_t even_count = 0);

// Entropy of the tokens' frequencies: what a model that knows only them would reach. Corpora above 1 GiB are
// sampled.
double unigram_entropy_nats(const Tokens& tokens);

}  // namespace headrace

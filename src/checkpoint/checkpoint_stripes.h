// A checkpoint with parity, stripe by stripe: reads a stripe of all files, checks each piece, and rebuilds
// those that are damaged. One thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "headrace/io_engine.h"
#include "headrace/io_file.h"
#include "headrace/parity_code.h"
#include "src/checkpoint/manifest.h"

namespace headrace {

class CheckpointStripes {
 public:
  // `manifest` has parity and outlives this. `memory`: memory_bytes(manifest), page-aligned.
  CheckpointStripes(const std::string& folder, const Manifest& manifest, IoEngine& io,
                    std::span<std::byte> memory);
  static Bytes memory_bytes(const Manifest& manifest);

  std::uint64_t count() const;
  struct Bad {
    std::uint32_t file = 0;  // Manifest::file
    std::string what;        // "at byte 4096 is not what was written"
  };
  // What is damaged of it.
  const std::vector<Bad>& read(std::uint64_t stripe);
  // Rebuilds what the last read found damaged. False where that is more than parity makes up for.
  bool rebuild();
  // Of the stripe read last; empty behind the file's end.
  std::span<const std::byte> piece(std::uint32_t file) const;

 private:
  Bytes piece_bytes(std::uint32_t file) const;
  std::string problem_of(std::uint32_t file, IoTicket& ticket) const;
  std::span<std::byte> memory_of(std::uint32_t file) const;

  const Manifest& manifest_;
  IoEngine& io_;
  std::span<std::byte> memory_;
  ParityCode code_;
  struct OpenFile {
    std::optional<IoFile> file;
    std::string problem;  // why it is not open
  };
  std::vector<OpenFile> files_;
  std::uint64_t stripe_ = 0;
  std::vector<Bad> bad_;
};

}  // namespace headrace

// Writes parity over the files of all ranks, when they are written: `--checkpoint-parity`.
//
// [Note: parity of a checkpoint] Byte x of row j is the j-th sum over byte x of every rank's file. In a round
// a range of all files is dealt to the ranks by chunks: each gets its chunk of every file, makes the chunk of
// every row, and sends it to the rank that writes that row. So traffic, sums and writes are shared, no rank
// needs to see another's disk, and the buffers have one size whatever the model and the number of ranks.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "headrace/communicator.h"
#include "headrace/io_engine.h"
#include "src/checkpoint/manifest.h"

namespace headrace {

inline constexpr Bytes parity_alignment = 4096;  // of stripes

std::string parity_file_name(std::uint32_t row, std::uint32_t rows);  // "parity-00000-of-00001.bin"

// Which of the ranks writes it.
constexpr std::uint32_t writer_of_parity(std::uint32_t row, std::size_t ranks) {
  return row % static_cast<std::uint32_t>(ranks);
}

struct ParityWork {
  const std::string& folder;
  const Manifest& manifest;  // of the files that are written, with all slices
  std::uint32_t rows;
  IoEngine& io;
  Communicator& communicator;
  Device& device;
  std::span<std::byte> memory;  // page-aligned, checkpoint_memory_bytes
};
// A collective. Reads this rank's file once more and compares it with the manifest (CorruptData where the
// disk gives back something else), writes this rank's rows and flushes them. The same on every rank; throws
// this rank's own failure, after its part in what the others do.
ManifestParity write_parity(const ParityWork& work);

}  // namespace headrace

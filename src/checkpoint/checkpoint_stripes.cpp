#include "src/checkpoint/checkpoint_stripes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "headrace/errors.h"
#include "headrace/files.h"

namespace headrace {

Bytes CheckpointStripes::memory_bytes(const Manifest& manifest) {
  return manifest.parity->stripe_bytes * manifest.file_count();
}

CheckpointStripes::CheckpointStripes(const std::string& folder, const Manifest& manifest, IoEngine& io,
                                     std::span<std::byte> memory)
    : manifest_(manifest),
      io_(io),
      memory_(memory.first(memory_bytes(manifest))),
      code_(static_cast<std::uint32_t>(manifest.files.size()), manifest.parity_rows()) {
  for (std::uint32_t f = 0; f < manifest.file_count(); ++f) {
    OpenFile& one = files_.emplace_back();
    try {
      one.file.emplace(IoFile::open(files::join(folder, manifest.file(f).name), IoFile::Mode::read_only));
    } catch (const IoError& error) {
      one.problem = error.code() == ENOENT ? "is missing" : error.what();
    }
  }
}

std::uint64_t CheckpointStripes::count() const {
  return manifest_.parity->crc32c.back().size();  // parity is as long as the longest
}

Bytes CheckpointStripes::piece_bytes(std::uint32_t file) const {
  const Bytes most = manifest_.parity->stripe_bytes, begin = stripe_ * most,
              bytes = manifest_.file(file).bytes;
  return begin < bytes ? std::min(most, bytes - begin) : 0;
}

std::span<std::byte> CheckpointStripes::memory_of(std::uint32_t file) const {
  const Bytes most = manifest_.parity->stripe_bytes;
  return memory_.subspan(file * most, most);
}

std::span<const std::byte> CheckpointStripes::piece(std::uint32_t file) const {
  return memory_of(file).first(piece_bytes(file));
}

std::string CheckpointStripes::problem_of(std::uint32_t file, IoTicket& ticket) const {
  if (!files_[file].file) return files_[file].problem;
  const std::uint64_t begin = stripe_ * manifest_.parity->stripe_bytes;
  const IoResult result = ticket.wait();
  if (!result.ok())
    return fmt::format("cannot be read at byte {} ({})", begin + result.bytes, std::strerror(result.code));
  if (crc32c(piece(file)) == manifest_.parity->crc32c[file][stripe_]) return "";
  return fmt::format("is not what was written, in bytes {} to {}", begin, begin + piece_bytes(file));
}

const std::vector<CheckpointStripes::Bad>& CheckpointStripes::read(std::uint64_t stripe) {
  stripe_ = stripe;
  bad_.clear();
  std::vector<IoTicket> tickets(files_.size());
  for (std::uint32_t f = 0; f < files_.size(); ++f) {
    const Bytes bytes = piece_bytes(f);
    const std::span<std::byte> memory = memory_of(f);
    if (bytes > 0 && files_[f].file)
      tickets[f] = io_.submit(IoDirection::read, *files_[f].file, stripe * manifest_.parity->stripe_bytes,
                              HostLease::borrowed(memory), bytes);
  }
  for (std::uint32_t f = 0; f < files_.size(); ++f) {
    const Bytes bytes = piece_bytes(f);
    if (bytes > 0)
      if (std::string problem = problem_of(f, tickets[f]); !problem.empty())
        bad_.push_back({f, std::move(problem)});
    const std::span<std::byte> behind = memory_of(f).subspan(bytes);
    std::memset(behind.data(), 0, behind.size());
  }
  return bad_;
}

bool CheckpointStripes::rebuild() {
  if (bad_.size() > manifest_.parity_rows()) return false;
  std::vector<ParityCode::Piece> sources, lost;
  for (std::uint32_t f = 0; f < files_.size(); ++f) {
    const bool is_bad = std::ranges::find(bad_, f, &Bad::file) != bad_.end();
    if (is_bad)
      lost.push_back({f, memory_of(f).data()});
    else if (sources.size() < code_.data())
      sources.push_back({f, memory_of(f).data()});
  }
  code_.rebuild(sources, lost, manifest_.parity->stripe_bytes);
  return std::ranges::all_of(lost, [&](const ParityCode::Piece& one) {
    return crc32c(piece(one.index)) == manifest_.parity->crc32c[one.index][stripe_];
  });
}

}  // namespace headrace

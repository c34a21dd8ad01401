// Sums of device memory over ranks, in rank order on every rank: NCCL's own order depends on how the ranks
// are connected.
//
// A short vector is sent whole to everyone and summed by everyone: one exchange, n(N-1) elements sent per
// rank. A long one is cut in one slice a rank: slices go to their owner, which sums, and the sums are
// gathered: 2n(N-1) elements sent by all ranks together. It runs in chunks, so that scratch memory stays
// small.
#include <algorithm>
#include <vector>

#include "gpu/nccl_communicator.h"
#include "gpu/rank_sum_kernels.h"

namespace headrace {
namespace {

constexpr Bytes short_vector_bytes = Bytes{16} << 10;  // as over MPI, so that both send the same

// Slice `index` of `parts`: all of one length, the last ones shorter or empty.
template <class T>
std::span<T> slice_of(std::span<T> values, std::size_t index, std::size_t parts) {
  const std::size_t length = (values.size() + parts - 1) / parts;
  const std::size_t first = std::min(values.size(), index * length);
  return values.subspan(first, std::min(length, values.size() - first));
}

}  // namespace

// Sends parts[r] to rank r, and sums what all ranks hold of `own`, this rank's part.
template <class T>
void NcclCommunicator::sum_own_part(std::span<T> own, std::span<const Piece> parts) {
  T* const gathered = static_cast<T*>(scratch_.get());
  std::vector<Piece> receive;
  for (std::size_t r = 0; r < parts.size(); ++r)
    receive.push_back({gathered + r * own.size(), own.size_bytes()});
  exchange(parts, receive);
  sum_in_rank_order(queue_,
                    RankVectors<T>{.own = own.data(),
                                   .gathered = gathered,
                                   .self = rank_,
                                   .ranks = size_,
                                   .numel = static_cast<std::int64_t>(own.size())},
                    own.data());
}

template <class T>
void NcclCommunicator::sum_slices(std::span<T> values) {
  const auto self = static_cast<std::size_t>(rank_), ranks = static_cast<std::size_t>(size_);
  std::vector<Piece> slices;
  std::vector<Bytes> slice_bytes;
  for (std::size_t r = 0; r < ranks; ++r) {
    const std::span<T> slice = slice_of(values, r, ranks);
    slices.push_back({slice.data(), slice.size_bytes()});
    slice_bytes.push_back(slice.size_bytes());
  }
  sum_own_part(slice_of(values, self, ranks), slices);
  gather_pieces(values.data(), slice_bytes);
}

template <class T>
void NcclCommunicator::sum_over_ranks(std::span<T> values, Traffic traffic, std::string_view label) {
  const auto self = static_cast<std::size_t>(rank_), ranks = static_cast<std::size_t>(size_);
  if (values.empty()) return;
  if (!on_device(values.data())) return control_->all_reduce(values, traffic, label);
  if (values.size_bytes() <= std::min(short_vector_bytes, scratch_bytes / ranks)) {
    counters_[traffic] += values.size_bytes() * (ranks - 1);
    const std::vector<Piece> whole(ranks, {values.data(), values.size_bytes()});
    return enqueue("all_reduce", label, [&] { sum_own_part(values, whole); });
  }
  const std::size_t chunk_numel = scratch_bytes / sizeof(T) / ranks * ranks;
  for (std::size_t first = 0; first < values.size(); first += chunk_numel) {
    const auto chunk = values.subspan(first, std::min(values.size() - first, chunk_numel));
    const Bytes own_bytes = slice_of(chunk, self, ranks).size_bytes();
    counters_[traffic] += chunk.size_bytes() - own_bytes + own_bytes * (ranks - 1);
    enqueue("all_reduce", label, [&] { sum_slices(chunk); });
  }
}

void NcclCommunicator::all_reduce(std::span<float> values, Traffic traffic, std::string_view label) {
  sum_over_ranks(values, traffic, label);
}

void NcclCommunicator::all_reduce(std::span<double> values, Traffic traffic, std::string_view label) {
  sum_over_ranks(values, traffic, label);
}

void NcclCommunicator::all_reduce(std::span<std::uint64_t> values, Traffic traffic, std::string_view label) {
  sum_over_ranks(values, traffic, label);
}

}  // namespace headrace

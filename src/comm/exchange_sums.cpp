// Sums over ranks, in rank order on every rank, so that the bits depend neither on timing nor on a
// transport's own algorithms.
//
// A short vector is sent whole to everyone and summed by everyone: one exchange, n(N-1) elements sent per
// rank. A long one is cut in one slice a rank: slices go to their owner, which sums, and the sums are
// gathered: 2n(N-1) elements sent by all ranks together. It runs in chunks, so that scratch memory stays
// small.
#include <algorithm>

#include "headrace/exchange_communicator.h"

namespace headrace {
namespace {

constexpr Bytes short_vector_bytes = Bytes{16} << 10;
constexpr Bytes chunk_bytes = Bytes{4} << 20;

// Slice `index` of `parts` of n elements.
struct Slice {
  Slice(std::size_t n, std::size_t index, std::size_t parts)
      : first(n / parts * index + std::min(index, n % parts)),
        count(n / parts + (index < n % parts ? 1 : 0)) {}
  std::size_t first, count;
};

// sums[i] = vectors[0][i] + vectors[1][i] + ...
template <class T>
void sum(std::span<const T* const> vectors, std::span<T> sums) {
  for (std::size_t i = 0; i < sums.size(); ++i) {
    T value = vectors[0][i];
    for (std::size_t r = 1; r < vectors.size(); ++r) value += vectors[r][i];
    sums[i] = value;
  }
}

}  // namespace

template <class T>
void ExchangeCommunicator::sum_gathered(std::span<T> values, const Operation& operation) const {
  const auto self = static_cast<std::size_t>(rank()), ranks = static_cast<std::size_t>(size());
  std::vector<T> others(ranks * values.size());
  std::vector<Piece> receive(ranks);
  std::vector<const T*> vectors(ranks);
  for (std::size_t r = 0; r < ranks; ++r) {
    T* memory = others.data() + r * values.size();
    receive[r] = {memory, values.size_bytes()};
    vectors[r] = r == self ? values.data() : memory;
  }
  exchange(std::vector<Piece>(ranks, {values.data(), values.size_bytes()}), receive, operation);
  sum<T>(vectors, values);
}

template <class T>
void ExchangeCommunicator::sum_sliced(std::span<T> values, const Operation& operation) const {
  const auto self = static_cast<std::size_t>(rank()), ranks = static_cast<std::size_t>(size());
  const Slice own(values.size(), self, ranks);
  std::vector<T> others(ranks * own.count);
  std::vector<Piece> slices(ranks), receive(ranks);
  std::vector<const T*> vectors(ranks);
  for (std::size_t r = 0; r < ranks; ++r) {
    const Slice slice(values.size(), r, ranks);
    T* memory = others.data() + r * own.count;
    slices[r] = {values.data() + slice.first, slice.count * sizeof(T)};
    receive[r] = {memory, own.count * sizeof(T)};
    vectors[r] = r == self ? values.data() + own.first : memory;
  }
  exchange(slices, receive, operation);
  sum<T>(vectors, values.subspan(own.first, own.count));
  exchange(std::vector<Piece>(ranks, slices[self]), slices, operation);
}

template <class T>
void ExchangeCommunicator::sum_in_rank_order(std::span<T> values, Traffic traffic, std::string_view label) {
  const auto self = static_cast<std::size_t>(rank()), ranks = static_cast<std::size_t>(size());
  if (values.size_bytes() <= short_vector_bytes) {
    counters_[traffic] += values.size_bytes() * (ranks - 1);
    enqueue("all_reduce", label,
            [this, values](const Operation& operation) { sum_gathered(values, operation); });
    return;
  }
  for (std::size_t first = 0; first < values.size(); first += chunk_bytes / sizeof(T)) {
    const auto chunk = values.subspan(first, std::min(values.size() - first, chunk_bytes / sizeof(T)));
    const std::size_t own = Slice(chunk.size(), self, ranks).count;
    counters_[traffic] += (chunk.size() - own + own * (ranks - 1)) * sizeof(T);
    enqueue("all_reduce", label, [this, chunk](const Operation& operation) { sum_sliced(chunk, operation); });
  }
}

void ExchangeCommunicator::all_reduce(std::span<float> values, Traffic traffic, std::string_view label) {
  sum_in_rank_order(values, traffic, label);
}

void ExchangeCommunicator::all_reduce(std::span<double> values, Traffic traffic, std::string_view label) {
  sum_in_rank_order(values, traffic, label);
}

void ExchangeCommunicator::all_reduce(std::span<std::uint64_t> values, Traffic traffic,
                                      std::string_view label) {
  sum_in_rank_order(values, traffic, label);
}

}  // namespace headrace

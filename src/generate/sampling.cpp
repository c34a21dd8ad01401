#include <algorithm>
#include <cmath>
#include <vector>

#include "headrace/errors.h"
#include "headrace/generate.h"
#include "headrace/splitmix.h"

namespace headrace {
namespace {

struct Candidate {
  std::int32_t id;
  double weight;
};

// The likeliest id; of several the lowest. Every logit is looked at.
std::int32_t likeliest(std::span<const float> logits) {
  std::size_t best = 0;
  for (std::size_t id = 0; id < logits.size(); ++id) {
    if (std::isnan(logits[id]))
      throw Error(
          "the model's logits are not numbers: its weights are damaged, were lost in training, or are too "
          "large for the type that it computes in (--dtype fp32 has the widest range).");
    if (logits[id] > logits[best]) best = id;
  }
  if (!std::isfinite(logits[best])) throw Error("the model's logits are infinite: its weights are damaged.");
  return static_cast<std::int32_t>(best);
}

// Those that top_k and top_p leave, the likeliest first where one of them leaves some out.
std::vector<Candidate> candidates_of(std::span<const float> logits, const SamplingOptions& sampling,
                                     double largest) {
  std::vector<Candidate> all(logits.size());
  for (std::size_t id = 0; id < all.size(); ++id)
    all[id] = {static_cast<std::int32_t>(id),
               std::exp((static_cast<double>(logits[id]) - largest) / sampling.temperature)};
  const auto kept =
      sampling.top_k > 0 ? std::min(all.size(), static_cast<std::size_t>(sampling.top_k)) : all.size();
  if (kept == all.size() && sampling.top_p >= 1) return all;
  std::partial_sort(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(kept), all.end(),
                    [](const Candidate& a, const Candidate& b) {
                      return a.weight != b.weight ? a.weight > b.weight : a.id < b.id;
                    });
  all.resize(kept);
  double total = 0, so_far = 0;
  for (const Candidate& one : all) total += one.weight;
  std::size_t count = 0;
  while (count < all.size() && (count == 0 || so_far < sampling.top_p * total)) so_far += all[count++].weight;
  all.resize(count);
  return all;
}

}  // namespace

std::int32_t draw_token(std::span<const float> logits, const SamplingOptions& sampling, double uniform) {
  const std::int32_t best = likeliest(logits);
  if (sampling.temperature == 0 || sampling.top_k == 1) return best;
  const double largest = static_cast<double>(logits[static_cast<std::size_t>(best)]);
  const std::vector<Candidate> candidates = candidates_of(logits, sampling, largest);
  double total = 0;
  for (const Candidate& one : candidates) total += one.weight;
  double left = uniform * total;
  for (const Candidate& one : candidates) {
    left -= one.weight;
    if (left < 0) return one.id;
  }
  return best;  // roundings alone lead here
}

double draw_uniform(std::uint64_t seed, int sequence, int position) {
  const std::uint64_t bits = splitmix64(splitmix64(splitmix64(seed) + static_cast<std::uint64_t>(sequence)) +
                                        static_cast<std::uint64_t>(position));
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

}  // namespace headrace

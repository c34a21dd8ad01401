#include "src/zero/overflow_place.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "headrace/errors.h"

namespace headrace {
namespace {

std::string_view plural(std::size_t count, std::string_view ending) {
  return count == 1 ? "" : ending;
}

std::string element_text(const UnitLayout& layout, std::uint64_t element) {
  std::string text;
  for_each_parameter(layout, {element, 1}, [&](std::size_t p, std::uint64_t first, Range) {
    text = fmt::format("element {} of {}", first, layout.spec.parameters[p].name);
  });
  return text;
}

}  // namespace

std::string overflow_place(EngineContext& context, GradientStore& gradients) {
  const auto gather = [&](const GradientPlace& own) {
    return gather_from_ranks(own, context.communicator, context.device, "overflow");
  };
  std::vector<GradientPlace> places = gather(gradients.first_before_the_sum());
  const bool of_a_rank = std::ranges::any_of(places, &GradientPlace::found);
  if (!of_a_rank) places = gather(gradients.first_of_the_sum());
  const GradientPlace first = *std::ranges::min_element(places);
  HEADRACE_CHECK(first.found(), "every gradient of a sum that is not finite is finite");
  const std::string element = element_text(context.units[first.unit].layout, first.element);
  if (!of_a_rank) {
    const auto micro_batches = static_cast<std::size_t>(gradients.micro_batches());
    return fmt::format(
        "{}, in the sum over {} rank{} and {} micro-batch{}, while the gradient of each is finite there",
        element, places.size(), plural(places.size(), "s"), micro_batches, plural(micro_batches, "es"));
  }
  std::vector<std::size_t> ranks;
  for (std::size_t r = 0; r < places.size(); ++r)
    if (places[r] == first) ranks.push_back(r);
  return fmt::format("{}, in the gradient of rank{} {}", element, plural(ranks.size(), "s"),
                     fmt::join(ranks, ", "));
}

}  // namespace headrace

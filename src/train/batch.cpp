// The batch triangle: train = micro x accumulation x world (FIELD-CASES G1).
#include <fmt/format.h>

#include <limits>

#include "headrace/config.h"
#include "headrace/errors.h"

namespace headrace {
namespace {

constexpr std::uint64_t default_micro_batch = 8;
constexpr std::uint64_t largest_batch = std::numeric_limits<std::int32_t>::max();

[[noreturn]] void not_divisible(const BatchSizes& given, std::string_view by, std::uint64_t divisor,
                                const std::string& source) {
  throw UsageError(fmt::format(
      "a global batch of {} sequences cannot be divided by {} = {}, with a world size of {} ({}). "
      "A global batch is micro-batch x accumulation x world size.",
      given.global, by, divisor, given.world, source));
}

std::uint64_t checked_product(const BatchSizes& batch) {
  const double product = static_cast<double>(batch.micro) * static_cast<double>(batch.accumulation) *
                         static_cast<double>(batch.world);
  if (product > static_cast<double>(largest_batch))
    throw UsageError(fmt::format(
        "a global batch of {:.3g} sequences (micro-batch {} x accumulation {} x world size {}) is "
        "more than {}.",
        product, batch.micro, batch.accumulation, batch.world, largest_batch));
  return batch.micro * batch.accumulation * batch.world;
}

}  // namespace

BatchSizes resolve_batch(const BatchSizes& given, const std::string& source) {
  BatchSizes batch = given;
  if (batch.global == 0) {
    if (batch.micro == 0) batch.micro = default_micro_batch;
    if (batch.accumulation == 0) batch.accumulation = 1;
    batch.global = checked_product(batch);
  } else if (batch.micro == 0) {
    if (batch.accumulation == 0) batch.accumulation = 1;
    const std::uint64_t divisor = batch.accumulation * batch.world;
    if (batch.global % divisor != 0) not_divisible(given, "accumulation x world size", divisor, source);
    batch.micro = batch.global / divisor;
  } else if (batch.accumulation == 0) {
    const std::uint64_t divisor = batch.micro * batch.world;
    if (batch.global % divisor != 0) not_divisible(given, "micro-batch x world size", divisor, source);
    batch.accumulation = batch.global / divisor;
  } else if (batch.global != checked_product(batch)) {
    throw UsageError(
        fmt::format("the batch sizes contradict each other: global batch {} is not micro-batch {} x "
                    "accumulation {} x world "
                    "size {} = {} (world size from {}). Give two of the three, the third follows.",
                    batch.global, batch.micro, batch.accumulation, batch.world,
                    batch.micro * batch.accumulation * batch.world, source));
  }
  return batch;
}

}  // namespace headrace

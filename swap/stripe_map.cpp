#include "swap/stripe_map.h"

#include <algorithm>

#include "headrace/errors.h"

namespace headrace::swap {
namespace {

constexpr Bytes largest_file = Bytes{1} << 62;  // offsets are signed 64-bit in the kernel

Bytes piece_bytes_of(const SwapBlock& block, const StripeShape& shape) {
  if (block.bytes > largest_file)
    throw DoesNotFit(
        fmt::format("swap block \"{}\" of {} bytes is larger than any file can be; use smaller blocks.",
                    block.name, block.bytes));
  return round_up(block.bytes, shape.alignment * shape.data_pieces()) / shape.data_pieces();
}

}  // namespace

std::vector<std::uint32_t> place_blocks(const std::vector<SwapBlock>& blocks, const StripeShape& shape,
                                        const std::vector<double>& rates) {
  std::vector<std::uint32_t> first_paths;
  first_paths.reserve(blocks.size());
  if (shape.parity > 0) {
    for (std::size_t block = 0; block < blocks.size(); ++block)
      first_paths.push_back(static_cast<std::uint32_t>(block % shape.paths));
    return first_paths;
  }
  std::vector<double> weights(shape.paths, 1.0 / shape.paths);
  double sum = 0;
  for (const double rate : rates) sum += rate;
  for (std::size_t path = 0; path < rates.size(); ++path) weights[path] = rates[path] / sum;
  std::vector<double> owed(shape.paths, 0.0);  // bytes that a path should have got by now and has not
  for (const SwapBlock& block : blocks) {
    const auto bytes = static_cast<double>(std::max<Bytes>(block.bytes, 1));
    for (std::size_t path = 0; path < owed.size(); ++path) owed[path] += weights[path] * bytes;
    const double rounding = bytes * 1e-9;  // equal debts are equal, whatever the sums before them
    const double largest = *std::max_element(owed.begin(), owed.end());
    const auto most =
        std::find_if(owed.begin(), owed.end(), [&](double debt) { return debt >= largest - rounding; });
    *most -= bytes;
    first_paths.push_back(static_cast<std::uint32_t>(most - owed.begin()));
  }
  return first_paths;
}

StripeMap::StripeMap(const std::vector<SwapBlock>& blocks, const StripeShape& shape,
                     std::vector<std::uint32_t> first_paths)
    : shape_(shape), first_paths_(std::move(first_paths)), region_bytes_(shape.paths) {
  HEADRACE_CHECK(first_paths_.size() == blocks.size(), "{} places for {} blocks", first_paths_.size(),
                 blocks.size());
  for (std::uint32_t block = 0; block < blocks.size(); ++block) {
    const Bytes piece = piece_bytes_of(blocks[block], shape_);
    block_bytes_.push_back(blocks[block].bytes);
    piece_bytes_.push_back(piece);
    largest_piece_bytes_ = std::max(largest_piece_bytes_, piece);
    starts_.push_back(region_bytes_[path_of(block, 0)]);  // with parity all paths have the same
    for (std::uint32_t p = 0; p < shape_.pieces(); ++p) {
      Bytes& region = region_bytes_[path_of(block, p)];
      region += piece;
      if (region > largest_file / shape_.copies())
        throw DoesNotFit(
            fmt::format("swap block \"{}\" of {} bytes makes the swap file larger than any file "
                        "system can hold; use smaller blocks or more ranks.",
                        blocks[block].name, blocks[block].bytes));
    }
  }
}

bool StripeMap::is_extent_of(std::uint32_t block, std::uint32_t piece, const ExtentEntry& entry) const {
  if (entry.path != path_of(block, piece)) return false;
  for (std::uint32_t copy = 0; copy < shape_.copies(); ++copy)
    if (entry.offset == offset(block, piece, copy)) return true;
  return false;
}

std::uint32_t StripeMap::free_copy(std::uint32_t block, std::span<const ExtentTable* const> reserved) const {
  if (shape_.copies() == 1 || piece_bytes_[block] == 0) return 0;
  const auto is_held = [&](std::uint32_t copy) {
    return std::ranges::any_of(reserved, [&](const ExtentTable* table) {
      const ExtentEntry& first = (*table)[entry(block)];
      return first.generation > 0 && first.offset == offset(block, 0, copy);
    });
  };
  for (std::uint32_t copy = 0; copy < shape_.copies(); ++copy)
    if (!is_held(copy)) return copy;
  HEADRACE_CHECK(false,
                 "swap block {} is written before release_superseded(): all its extents hold committed steps",
                 block);
  return 0;
}

}  // namespace headrace::swap

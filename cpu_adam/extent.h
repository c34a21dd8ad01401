// How much of a vector a load or store covers.
#pragma once

#include <cstdint>

namespace headrace {
namespace {

struct Whole {};
// The first n lanes alone: no byte beyond them is touched, and loads fill the others with 0.
struct First {
  std::uint64_t n;
};

}  // namespace
}  // namespace headrace

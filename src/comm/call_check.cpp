#include "src/comm/call_check.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "headrace/errors.h"

namespace headrace {
namespace {

static_assert(std::is_trivially_copyable_v<AnnouncedCall>);

// Longer texts are cut; the last character stays 0.
template <std::size_t length>
void put(std::array<char, length>& target, std::string_view text) {
  std::copy_n(text.begin(), std::min(text.size(), length - 1), target.begin());
}

std::string text_of(int rank, const AnnouncedCall& call) {
  return fmt::format("rank {} is in {} #{} of \"{}\"", rank, call.name.data(), call.sequence,
                     call.label.data());
}

}  // namespace

bool call_check_asked_for() {
  const char* value = std::getenv("HEADRACE_COMM_CHECK");
  return value != nullptr && std::strcmp(value, "1") == 0;
}

AnnouncedCall::AnnouncedCall(const Operation& operation) : sequence(operation.sequence) {
  put(name, operation.name);
  put(label, operation.label);
}

void AnnouncedCall::require_same(int rank, const AnnouncedCall& other, int other_rank) const {
  if (other != *this)
    throw Error(fmt::format("the ranks took different paths: {}, {}.", text_of(rank, *this),
                            text_of(other_rank, other)));
}

}  // namespace headrace

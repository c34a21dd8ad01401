#include "src/comm/mpi/call_check.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "headrace/errors.h"

namespace headrace {
namespace {

struct Call {
  std::array<char, 24> name{};
  std::array<char, 64> label{};
  std::uint64_t sequence = 0;
  bool operator==(const Call&) const = default;
};
static_assert(std::is_trivially_copyable_v<Call>);

// Longer texts are cut; the last character stays 0.
template <std::size_t length>
void put(std::array<char, length>& target, std::string_view text) {
  std::copy_n(text.begin(), std::min(text.size(), length - 1), target.begin());
}

std::string text_of(int rank, const Call& call) {
  return fmt::format("rank {} is in {} #{} of \"{}\"", rank, call.name.data(), call.sequence,
                     call.label.data());
}

}  // namespace

bool call_check_asked_for() {
  const char* value = std::getenv("HEADRACE_COMM_CHECK");
  return value != nullptr && std::strcmp(value, "1") == 0;
}

void check_same_call(MPI_Comm comm, int rank, int size, const Operation& operation) {
  std::vector<Call> calls(static_cast<std::size_t>(size));
  Call& own = calls[static_cast<std::size_t>(rank)];
  put(own.name, operation.name);
  put(own.label, operation.label);
  own.sequence = operation.sequence;
  Messages messages(comm, operation);
  for (int r = 0; r < size; ++r) {
    if (r == rank) continue;
    messages.receive(r, &calls[static_cast<std::size_t>(r)], sizeof(Call));
    messages.send(r, &own, sizeof(Call));
  }
  messages.wait();
  for (int r = 0; r < size; ++r)
    if (const Call& other = calls[static_cast<std::size_t>(r)]; other != own)
      throw Error(
          fmt::format("the ranks took different paths: {}, {}.", text_of(rank, own), text_of(r, other)));
}

}  // namespace headrace

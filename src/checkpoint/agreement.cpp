#include "src/checkpoint/agreement.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <sstream>

#include "headrace/errors.h"

namespace headrace {
namespace {

struct Outcome {
  bool failed = false;
  char text[1023] = {};
};

Outcome outcome_of(const std::exception_ptr& error) {
  Outcome outcome{.failed = error != nullptr};
  if (error == nullptr) return outcome;
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& failure) {
    std::strncpy(outcome.text, failure.what(), sizeof outcome.text - 1);
  }
  return outcome;
}

}  // namespace

void together(Communicator& communicator, Device& device, std::string_view label,
              const std::function<void()>& action) {
  std::exception_ptr error;
  try {
    action();
  } catch (const Error&) {
    error = std::current_exception();
  }
  const std::vector<Outcome> all = gather_from_ranks(outcome_of(error), communicator, device, label);
  if (error != nullptr) std::rethrow_exception(error);
  for (std::size_t rank = 0; rank < all.size(); ++rank)
    if (all[rank].failed) throw Error(fmt::format("rank {}: {}", rank, all[rank].text));
}

std::vector<std::byte> gather_bytes(std::span<const std::byte> own, Communicator& communicator,
                                    Device& device, std::string_view label) {
  const std::vector<Bytes> pieces = gather_from_ranks(Bytes{own.size()}, communicator, device, label);
  Bytes total = 0, before = 0;
  for (std::size_t rank = 0; rank < pieces.size(); ++rank) {
    if (static_cast<int>(rank) < communicator.rank()) before += pieces[rank];
    total += pieces[rank];
  }
  std::vector<std::byte> all(total);
  std::ranges::copy(own, all.begin() + static_cast<std::ptrdiff_t>(before));
  if (communicator.size() > 1) communicator.all_gather(all.data(), pieces, Traffic::control, label);
  device.synchronize();
  return all;
}

std::vector<std::string> gather_lines(const std::vector<std::string>& own, Communicator& communicator,
                                      Device& device, std::string_view label) {
  std::string text;
  for (const std::string& line : own) text += line + '\n';
  const std::vector<std::byte> all =
      gather_bytes(std::as_bytes(std::span(text)), communicator, device, label);
  std::istringstream lines(std::string(reinterpret_cast<const char*>(all.data()), all.size()));
  std::vector<std::string> result;
  for (std::string line; std::getline(lines, line);) result.push_back(line);
  return result;
}

}  // namespace headrace

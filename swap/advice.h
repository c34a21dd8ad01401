// What the errors of a store that cannot be used say to do about it.
#pragma once

#include <cstdint>
#include <exception>
#include <optional>
#include <stdexcept>
#include <string>

#include "headrace/errors.h"

namespace headrace::swap {

// An IoError that says more than which call failed.
class PathError final : public IoError {
 public:
  PathError(const std::string& text, const std::string& path, int code)
      : IoError("use", path, 0, 0, code), text_(text) {}
  const char* what() const noexcept override { return text_.what(); }

 private:
  std::runtime_error text_;
};

// Throws the error of a path that the store cannot do without once more, of the same type, with what to do
// behind it; a UsageError has said that. `parity`: the store's, where it is known.
[[noreturn]] void rethrow_with_advice(const std::exception_ptr& error, std::optional<std::uint32_t> parity);

}  // namespace headrace::swap

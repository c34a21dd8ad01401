// The three kinds of error. A caller's mistake or a set-up failure is an exception of the types here; an I/O
// outcome is a value (io_engine.h); a bug is HEADRACE_CHECK, always on. A message is one paragraph: what
// happened, to which thing, what to do. Effects never stand inside a check.
#pragma once

#include <fmt/format.h>

#include <cerrno>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

namespace headrace {

// Anything that ends a command with exit status 1.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Wrong usage or configuration: exit status 2.
class UsageError : public Error {
 public:
  using Error::Error;
};

// The plan exceeds a memory or disk limit; the message holds the ledger and the smallest change that fits:
// exit status 3.
class DoesNotFit : public Error {
 public:
  using Error::Error;
};

// A file operation failed. `path`, `offset` and `length` say where, `code` is the errno value.
class IoError : public Error {
 public:
  IoError(std::string_view operation, std::string path, std::uint64_t offset, std::uint64_t length, int code);
  const std::string& path() const { return path_; }
  std::uint64_t offset() const { return offset_; }
  std::uint64_t length() const { return length_; }
  int code() const { return code_; }

 private:
  std::string path_;
  std::uint64_t offset_ = 0, length_ = 0;
  int code_ = 0;
};

// Stored bytes do not match their checksum or their format.
class CorruptData : public Error {
 public:
  using Error::Error;
};

// What a message shows of a value that may be long: no more than a line holds.
std::string shortened(std::string_view text);

// The name among `known` with the smallest edit distance to `name`, or "" when none is near.
template <class Names>
std::string nearest_name(std::string_view name, const Names& known);
std::uint32_t edit_distance(std::string_view a, std::string_view b);

template <class Names>
std::string nearest_name(std::string_view name, const Names& known) {
  std::string best;
  std::uint32_t best_distance = static_cast<std::uint32_t>(name.size() / 2 + 1);
  for (const auto& candidate : known) {
    const std::uint32_t distance = edit_distance(name, candidate);
    if (distance < best_distance) best = candidate, best_distance = distance;
  }
  return best;
}

namespace detail {
[[noreturn]] void check_failed(const char* file, int line, const char* condition, const std::string& message);
[[noreturn]] void throw_errno(const char* file, int line, std::string_view what, int code);
}  // namespace detail

// Returns `result` of a system call, or throws Error with errno's text and `what` ("open swap file /x/y").
#define HEADRACE_MUST(result, what) ::headrace::detail::must_impl((result), (what), __FILE__, __LINE__)

namespace detail {
template <class T>
T must_impl(T result, std::string_view what, const char* file, int line) {
  if (result < 0) throw_errno(file, line, what, errno);
  return result;
}
}  // namespace detail

}  // namespace headrace

// A broken invariant of Headrace itself: prints and throws std::logic_error. Arguments after the condition
// are a fmt format.
#define HEADRACE_CHECK(condition, ...)                                                              \
  do {                                                                                              \
    if (!(condition)) [[unlikely]]                                                                  \
      ::headrace::detail::check_failed(__FILE__, __LINE__, #condition, ::fmt::format(__VA_ARGS__)); \
  } while (false)

// Which failures a tuning goes on after: those of the drive, and those of limits.
#pragma once

#include <new>
#include <optional>
#include <string>

#include "headrace/errors.h"

namespace headrace::tune {

struct Failure {
  std::string text;       // its first line
  bool of_limit = false;  // of memory: what is on the drive is as good as it was
};

// What `work` throws as an Error or for want of memory; anything else passes through.
template <class Work>
std::optional<Failure> failure_of(const Work& work) {
  const auto first_line = [](const Error& error) {
    const std::string text = error.what();
    return text.substr(0, text.find('\n'));
  };
  try {
    work();
    return std::nullopt;
  } catch (const DoesNotFit& error) {
    return Failure{first_line(error), true};
  } catch (const Error& error) {
    return Failure{first_line(error), false};
  } catch (const std::bad_alloc&) {
    return Failure{"the machine has too little memory for it", true};
  }
}

}  // namespace headrace::tune

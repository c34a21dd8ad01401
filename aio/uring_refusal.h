// Why io_uring cannot be used here, in words with a remedy.
#pragma once

#include <string>

#include "headrace/errors.h"

namespace headrace::aio {

// `code` is the errno value of io_uring_setup; `disabled_setting` the text of
// /proc/sys/kernel/io_uring_disabled ("" when there is no such file); `memlock_bytes` the soft
// RLIMIT_MEMLOCK.
std::string explain_refusal(int code, const std::string& disabled_setting, unsigned long long memlock_bytes);

class UringRefused : public Error {
 public:
  explicit UringRefused(int code);
  int code() const { return code_; }

 private:
  int code_;
};

}  // namespace headrace::aio

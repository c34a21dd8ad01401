// One move-only template for every handle of the operating system or a library. Traits give the raw type, the
// empty value and a noexcept close.
#pragma once

#include <unistd.h>

#include <utility>

namespace headrace {

template <class Traits>
class Owned {
 public:
  using Raw = typename Traits::Raw;
  Owned() = default;
  explicit Owned(Raw raw) noexcept : raw_(raw) {}
  Owned(Owned&& other) noexcept : raw_(std::exchange(other.raw_, Traits::none())) {}
  Owned& operator=(Owned&& other) noexcept {
    if (this != &other) reset(std::exchange(other.raw_, Traits::none()));
    return *this;
  }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  ~Owned() { reset(); }

  Raw get() const noexcept { return raw_; }
  explicit operator bool() const noexcept { return raw_ != Traits::none(); }
  Raw release() noexcept { return std::exchange(raw_, Traits::none()); }
  void reset(Raw raw = Traits::none()) noexcept {
    if (raw_ != Traits::none()) Traits::close(raw_);
    raw_ = raw;
  }

 private:
  Raw raw_ = Traits::none();
};

struct FdTraits {
  using Raw = int;
  static int none() noexcept { return -1; }
  static void close(int fd) noexcept { ::close(fd); }
};
using Fd = Owned<FdTraits>;

}  // namespace headrace

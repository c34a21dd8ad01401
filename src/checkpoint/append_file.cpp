#include "src/checkpoint/append_file.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "headrace/errors.h"

namespace headrace {
namespace {

constexpr Bytes cached_bytes = Bytes{128}
                               << 10;  // what is summed is still in a core's cache when it is copied

}  // namespace

AppendFile::AppendFile(IoEngine& engine, const std::string& path, Bytes bytes, std::span<std::byte> memory)
    : engine_(engine),
      file_(IoFile::open(path, IoFile::Mode::create)),
      bytes_(bytes),
      memory_(memory.first(memory_bytes)) {
  file_.preallocate(bytes);
}

AppendFile::~AppendFile() = default;  // tickets wait

std::uint32_t AppendFile::append(std::span<const std::byte> data) {
  HEADRACE_CHECK(submitted_ + filled_ + data.size() <= bytes_, "{} has {} of {} bytes, and {} more come",
                 file_.path(), submitted_ + filled_, bytes_, data.size());
  std::uint32_t crc = 0;
  while (!data.empty()) {
    const Bytes count = std::min<Bytes>({data.size(), buffer_bytes - filled_, cached_bytes});
    crc = crc32c(data.first(count), crc);
    std::memcpy(memory_.data() + next_ * buffer_bytes + filled_, data.data(), count);
    filled_ += count;
    data = data.subspan(count);
    if (filled_ == buffer_bytes) submit();
  }
  return crc;
}

void AppendFile::submit() {
  const Bytes bytes = std::exchange(filled_, 0);
  const std::span<std::byte> buffer = memory_.subspan(next_ * buffer_bytes, buffer_bytes);
  in_flight_.push_back(
      {engine_.submit(IoDirection::write, file_, submitted_, HostLease::borrowed(buffer), bytes), submitted_,
       bytes});
  submitted_ += bytes;
  next_ = (next_ + 1) % buffers;
  if (in_flight_.size() == buffers) wait_for_oldest();
}

void AppendFile::wait_for_oldest() {
  Write write = std::move(in_flight_.front());
  in_flight_.pop_front();
  const IoResult result = write.ticket.wait();
  if (!result.ok())
    throw IoError("write", file_.path(), write.offset + result.bytes, write.bytes - result.bytes,
                  result.code);
}

void AppendFile::finish() {
  if (filled_ > 0) submit();
  while (!in_flight_.empty()) wait_for_oldest();
  HEADRACE_CHECK(submitted_ == bytes_, "{} has {} of {} bytes", file_.path(), submitted_, bytes_);
  file_.sync_data();
}

}  // namespace headrace

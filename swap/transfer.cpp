#include "swap/transfer.h"

#include <cerrno>

#include "headrace/errors.h"

namespace headrace::swap {
namespace {

class Ticket final : public SwapTicket::State {
 public:
  explicit Ticket(std::shared_ptr<Transfer> transfer) : transfer_(std::move(transfer)) {}
  // The buffer goes back now, not at the commit.
  ~Ticket() override { (void)transfer_->take(); }
  void wait() override {
    waited_ = true;
    transfer_->check();
  }
  HostLease take() override {
    if (!waited_) transfer_->check();  // nobody gets unchecked bytes by forgetting to wait
    return transfer_->take();
  }

 private:
  std::shared_ptr<Transfer> transfer_;
  bool waited_ = false;
};

}  // namespace

Transfer::Transfer(std::shared_ptr<const ExtentFile> file, IoDirection direction, std::uint32_t block,
                   ExtentEntry entry, IoTicket ticket, HostLease buffer)
    : file_(std::move(file)),
      direction_(direction),
      block_(block),
      entry_(entry),
      ticket_(std::move(ticket)),
      buffer_(std::move(buffer)),
      complete_(!ticket_) {}

std::string Transfer::what() const {
  return fmt::format("{} of swap block \"{}\" (generation {})",
                     direction_ == IoDirection::read ? "read" : "write", file_->blocks[block_].name,
                     entry_.generation);
}

void Transfer::complete() {
  const std::lock_guard lock(mutex_);
  if (complete_) return;
  const IoResult result = ticket_.wait();
  buffer_ = ticket_.take();
  ticket_ = {};
  complete_ = true;
  verify(result);
}

void Transfer::verify(IoResult result) {
  code_ = result.code;
  if (!result.ok()) return;
  const Bytes bytes = file_->blocks[block_].bytes;
  if (result.bytes < bytes) {
    if (direction_ == IoDirection::write)
      code_ = EIO;
    else
      corruption_ = fmt::format("the file ends after {} of {} bytes", result.bytes, bytes);
  } else if (direction_ == IoDirection::read) {
    if (const std::uint32_t crc = crc32c(buffer_.memory().first(bytes)); crc != entry_.crc32c)
      corruption_ =
          fmt::format("its {} bytes have CRC32C {:08x}, {:08x} was written", bytes, crc, entry_.crc32c);
  }
}

bool Transfer::is_complete() {
  const std::lock_guard lock(mutex_);
  return complete_ || ticket_.done();
}

void Transfer::check() {
  complete();
  const std::string& path = file_->file.path();
  if (code_ != 0) throw IoError(what(), path, entry_.offset, file_->blocks[block_].bytes, code_);
  if (!corruption_.empty())
    throw CorruptData(fmt::format(
        "swap block \"{}\" (generation {}) is damaged in {} at offset {}: {}. The disk or another "
        "program changed it, and the run cannot continue from this step; `headrace inspect SWAP-PATH "
        "--verify` lists all damage.",
        file_->blocks[block_].name, entry_.generation, path, entry_.offset, corruption_));
}

HostLease Transfer::take() {
  complete();
  const std::lock_guard lock(mutex_);
  return std::move(buffer_);
}

SwapTicket make_ticket(std::shared_ptr<Transfer> transfer) {
  return SwapTicket(std::make_unique<Ticket>(std::move(transfer)));
}

}  // namespace headrace::swap

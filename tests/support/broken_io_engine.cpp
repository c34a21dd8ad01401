#include "tests/support/broken_io_engine.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <mutex>
#include <vector>

#include "aio/aligned_memory.h"

namespace headrace::testing {
namespace {

constexpr std::string_view names[] = {"none",
                                      "flips_a_bit",
                                      "writes_behind_its_bytes",
                                      "writes_a_block_more",
                                      "cuts_offsets_at_4_gib",
                                      "cuts_transfers_at_2_gib",
                                      "hides_errors",
                                      "counts_a_byte_too_many",
                                      "counts_nothing",
                                      "counts_waiting_twice",
                                      "keeps_buffers",
                                      "checks_no_arguments",
                                      "takes_any_option"};
static_assert(std::size(names) == static_cast<std::size_t>(Defect::takes_any_option) + 1);

// Whoever is to get them back may have gone: they stay to the end of the process.
void keep(HostLease lease) {
  static std::mutex mutex;
  static auto* const kept = new std::vector<HostLease>;
  const std::lock_guard lock(mutex);
  kept->push_back(std::move(lease));
}

class BrokenTicket final : public IoTicket::State {
 public:
  BrokenTicket(IoTicket inner, Defect defect, IoDirection direction, std::span<std::byte> memory, Bytes bytes)
      : inner_(std::move(inner)), defect_(defect), direction_(direction), memory_(memory), bytes_(bytes) {}
  ~BrokenTicket() override {
    if (defect_ == Defect::keeps_buffers && !taken_) keep(inner_.take());
  }

  IoResult wait() override {
    IoResult result = inner_.wait();
    if (!spoiled_) spoil();
    spoiled_ = true;
    if (defect_ == Defect::hides_errors) result = {.bytes = bytes_};
    if (defect_ == Defect::counts_a_byte_too_many) ++result.bytes;
    return result;
  }
  bool done() override { return inner_.done(); }
  HostLease take() override {
    taken_ = true;
    if (defect_ != Defect::keeps_buffers) return inner_.take();
    keep(inner_.take());
    return {};
  }

 private:
  void spoil() {
    if (direction_ != IoDirection::read) return;
    if (defect_ == Defect::flips_a_bit && bytes_ > 0) memory_[bytes_ - 1] ^= std::byte{1};
    if (defect_ == Defect::writes_behind_its_bytes && memory_.size() > bytes_)
      memory_[bytes_] ^= std::byte{1};
  }

  IoTicket inner_;
  const Defect defect_;
  const IoDirection direction_;
  const std::span<std::byte> memory_;
  const Bytes bytes_;
  bool spoiled_ = false, taken_ = false;
};

class RefusedTicket final : public IoTicket::State {
 public:
  explicit RefusedTicket(HostLease buffer) : buffer_(std::move(buffer)) {}
  IoResult wait() override { return {.code = EINVAL}; }
  bool done() override { return true; }
  HostLease take() override { return std::move(buffer_); }

 private:
  HostLease buffer_;
};

class BrokenEngine final : public IoEngine {
 public:
  BrokenEngine(std::unique_ptr<IoEngine> inner, Defect defect) : inner_(std::move(inner)), defect_(defect) {}

  std::string_view name() const override { return "broken"; }
  IoRegistration register_memory(std::span<std::byte> memory) override {
    return inner_->register_memory(memory);
  }
  IoCounters counters() const override {
    IoCounters counters = inner_->counters();
    if (defect_ == Defect::counts_nothing) return {};
    if (defect_ == Defect::counts_waiting_twice) counters.wait_seconds *= 2;
    return counters;
  }

  IoTicket submit(IoDirection direction, const IoFile& file, std::uint64_t offset, HostLease buffer,
                  Bytes bytes) override {
    constexpr Bytes one_system_call = 0x7ffff000;
    if (defect_ == Defect::cuts_offsets_at_4_gib) offset = static_cast<std::uint32_t>(offset);
    if (defect_ == Defect::cuts_transfers_at_2_gib) bytes = std::min(bytes, one_system_call);
    if (defect_ == Defect::checks_no_arguments && (bytes > buffer.memory().size() || offset >> 63 != 0))
      return IoTicket(std::make_unique<RefusedTicket>(std::move(buffer)));
    if (defect_ == Defect::writes_a_block_more && direction == IoDirection::write)
      write_zeros(file, offset + bytes);
    const std::span<std::byte> memory = buffer.memory();
    return IoTicket(
        std::make_unique<BrokenTicket>(inner_->submit(direction, file, offset, std::move(buffer), bytes),
                                       defect_, direction, memory, bytes));
  }

 private:
  void write_zeros(const IoFile& file, std::uint64_t offset) {
    constexpr Bytes block = 4096;
    const aio::AlignedMemory zeros = aio::allocate_aligned(block, block);
    std::memset(zeros.get(), 0, block);
    (void)inner_->submit(IoDirection::write, file, offset, HostLease::borrowed({zeros.get(), block}), block)
        .wait();
  }

  const std::unique_ptr<IoEngine> inner_;
  const Defect defect_;
};

}  // namespace

std::string_view name_of(Defect defect) {
  return names[static_cast<std::size_t>(defect)];
}

std::optional<Defect> defect_named(std::string_view name) {
  const auto found = std::ranges::find(names, name);
  if (found == std::end(names)) return std::nullopt;
  return static_cast<Defect>(found - std::begin(names));
}

std::unique_ptr<IoEngine> make_broken_engine(Defect defect, const IoEngineOptions& options) {
  return std::make_unique<BrokenEngine>(
      make_thread_engine(defect == Defect::takes_any_option ? IoEngineOptions{} : options), defect);
}

}  // namespace headrace::testing

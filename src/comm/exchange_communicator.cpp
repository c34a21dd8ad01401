#include "headrace/exchange_communicator.h"

#include <cstring>

#include "headrace/errors.h"
#include "src/comm/call_check.h"

namespace headrace {

ExchangeCommunicator::ExchangeCommunicator(Device& device, const CommunicatorOptions& options, int rank,
                                           int size)
    : device_(device), options_(options), rank_(rank), size_(size), check_calls_(call_check_asked_for()) {}

void ExchangeCommunicator::all_gather(void* buffer, std::span<const Bytes> piece_bytes, Traffic traffic,
                                      std::string_view label) {
  const auto self = static_cast<std::size_t>(rank()), ranks = static_cast<std::size_t>(size());
  HEADRACE_CHECK(piece_bytes.size() == ranks, "{} pieces, {} ranks", piece_bytes.size(), ranks);
  counters_[traffic] += piece_bytes[self] * (ranks - 1);
  std::vector<Piece> pieces;
  for (auto* next = static_cast<std::byte*>(buffer); const Bytes bytes : piece_bytes) {
    pieces.push_back({next, bytes});
    next += bytes;
  }
  enqueue("all_gather", label, [this, self, pieces = std::move(pieces)](const Operation& operation) {
    exchange(std::vector<Piece>(pieces.size(), pieces[self]), pieces, operation);
  });
}

void ExchangeCommunicator::all_to_all(std::span<const Piece> send, std::span<const Piece> receive,
                                      Traffic traffic, std::string_view label) {
  const auto self = static_cast<std::size_t>(rank()), ranks = static_cast<std::size_t>(size());
  HEADRACE_CHECK(send.size() == ranks && receive.size() == ranks, "{} and {} pieces, {} ranks", send.size(),
                 receive.size(), ranks);
  HEADRACE_CHECK(send[self].bytes == receive[self].bytes, "own piece of {} and {} bytes", send[self].bytes,
                 receive[self].bytes);
  for (std::size_t r = 0; r < ranks; ++r)
    if (r != self) counters_[traffic] += send[r].bytes;
  enqueue("all_to_all", label,
          [this, self, sends = std::vector<Piece>(send.begin(), send.end()),
           receives = std::vector<Piece>(receive.begin(), receive.end())](const Operation& operation) {
            exchange(sends, receives, operation);
            if (sends[self].bytes > 0 && sends[self].data != receives[self].data)
              std::memcpy(receives[self].data, sends[self].data, sends[self].bytes);
          });
}

void ExchangeCommunicator::broadcast(void* buffer, Bytes bytes, int root, Traffic traffic,
                                     std::string_view label) {
  const auto ranks = static_cast<std::size_t>(size());
  HEADRACE_CHECK(root >= 0 && root < size(), "broadcast from rank {} of {}", root, size());
  const bool sends = rank() == root;
  if (sends) counters_[traffic] += bytes * (ranks - 1);
  enqueue("broadcast", label, [this, ranks, sends, buffer, bytes, root](const Operation& operation) {
    std::vector<Piece> send(ranks, sends ? Piece{buffer, bytes} : Piece{}), receive(ranks);
    if (!sends) receive[static_cast<std::size_t>(root)] = {buffer, bytes};
    exchange(send, receive, operation);
  });
}

void ExchangeCommunicator::barrier(std::string_view label) {
  enqueue("barrier", label, [this](const Operation& operation) { wait_for_all_ranks(operation); });
  finish_lane();
}

void ExchangeCommunicator::enqueue(const char* name, std::string_view label, Work work) {
  Operation operation{name, sequence_++, std::string(label), options_.timeout_seconds};
  device_.enqueue(Lane::communicate, name, [this, operation = std::move(operation), work = std::move(work)] {
    if (check_calls_) check_same_call(operation);
    work(operation);
  });
}

void ExchangeCommunicator::check_same_call(const Operation& operation) const {
  std::vector<AnnouncedCall> calls(static_cast<std::size_t>(size_));
  AnnouncedCall own(operation);
  std::vector<Piece> send, receive;
  for (AnnouncedCall& call : calls) {
    send.push_back({&own, sizeof own});
    receive.push_back({&call, sizeof call});
  }
  exchange(send, receive, operation);
  for (int r = 0; r < size_; ++r)
    if (r != rank_) own.require_same(rank_, calls[static_cast<std::size_t>(r)], r);
}

void ExchangeCommunicator::wait_for_all_ranks(const Operation& operation) const {
  std::vector<std::byte> arrivals(static_cast<std::size_t>(size_));
  std::byte own{1};
  std::vector<Piece> receive;
  for (std::byte& arrival : arrivals) receive.push_back({&arrival, 1});
  exchange(std::vector<Piece>(arrivals.size(), {&own, 1}), receive, operation);
}

namespace {

class FunctionCommunicator final : public ExchangeCommunicator {
 public:
  FunctionCommunicator(Device& device, const CommunicatorOptions& options, int rank, int size,
                       Exchange exchange)
      : ExchangeCommunicator(device, options, rank, size), exchange_(std::move(exchange)) {}
  ~FunctionCommunicator() override {
    try {
      finish_lane();
    } catch (...) {  // NOLINT: the lane had failed, which another wait reports
    }
  }
  std::unique_ptr<Communicator> split(int, int) override {
    throw UsageError("this communicator is the caller's own and cannot be split.");
  }

 private:
  void exchange(std::span<const Piece> send, std::span<const Piece> receive,
                const Operation& operation) const override {
    exchange_(send, receive, operation);
  }
  const Exchange exchange_;
};

}  // namespace

std::unique_ptr<Communicator> make_exchange_communicator(Device& device, const CommunicatorOptions& options,
                                                         int rank, int size, Exchange exchange) {
  return std::make_unique<FunctionCommunicator>(device, options, rank, size, std::move(exchange));
}

}  // namespace headrace

// The communicator over MPI. Every MPI call after initialisation runs on the device's communicate lane, one
// at a time. Collectives are made of point-to-point messages: the bytes that move are the ones counted,
// pieces may be uneven or empty, and sums are made locally in rank order.
#include <mpi.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "headrace/communicator.h"
#include "headrace/errors.h"
#include "headrace/owned.h"
#include "src/comm/mpi/mpi_world.h"
#include "src/comm/mpi/polling.h"

namespace headrace {
namespace {

constexpr Bytes largest_message_bytes = Bytes{1} << 30;  // MPI counts are int

struct CommTraits {
  using Raw = MPI_Comm;
  static Raw none() noexcept { return MPI_COMM_NULL; }
  static void close(Raw comm) noexcept {
    int finalized = 0;
    MPI_Finalized(&finalized);
    if (finalized == 0) MPI_Comm_free(&comm);
  }
};

// Identifies a call for HEADRACE_COMM_CHECK=1.
struct CallHeader {
  std::array<char, 24> operation{};
  std::array<char, 64> label{};
  std::uint64_t sequence = 0;
};

class MpiCommunicator final : public Communicator {
 public:
  MpiCommunicator(Device& device, const CommunicatorOptions& options, MPI_Comm comm)
      : device_(device), options_(options), comm_(comm) {
    check_mpi(MPI_Comm_rank(comm, &rank_), "MPI_Comm_rank");
    check_mpi(MPI_Comm_size(comm, &size_), "MPI_Comm_size");
    const char* check = std::getenv("HEADRACE_COMM_CHECK");
    check_calls_ = check != nullptr && std::strcmp(check, "1") == 0;
  }
  ~MpiCommunicator() override {
    try {
      device_.host_wait(device_.record(Lane::communicate));
    } catch (...) {  // the failure was or will be reported by another wait
    }
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  void all_gather(void* buffer, std::span<const Bytes> piece_bytes, Traffic traffic,
                  std::string_view label) override {
    const auto self = static_cast<std::size_t>(rank_);
    HEADRACE_CHECK(piece_bytes.size() == static_cast<std::size_t>(size_), "{} pieces, {} ranks",
                   piece_bytes.size(), size_);
    count(traffic, piece_bytes[self] * static_cast<Bytes>(size_ - 1));
    std::vector<Piece> send(piece_bytes.size()), receive(piece_bytes.size());
    auto* next = static_cast<std::byte*>(buffer);
    for (std::size_t r = 0; r < piece_bytes.size(); ++r) {
      if (r != self) receive[r] = {next, piece_bytes[r]};
      if (r == self)
        for (std::size_t peer = 0; peer < send.size(); ++peer)
          if (peer != self) send[peer] = {next, piece_bytes[r]};
      next += piece_bytes[r];
    }
    enqueue("all_gather", label,
            [this, send = std::move(send), receive = std::move(receive)](const OperationName& name) {
              exchange(send, receive, name);
            });
  }

  void all_to_all(std::span<const Piece> send, std::span<const Piece> receive, Traffic traffic,
                  std::string_view label) override {
    const auto self = static_cast<std::size_t>(rank_);
    for (std::size_t r = 0; r < send.size(); ++r)
      if (r != self) count(traffic, send[r].bytes);
    enqueue("all_to_all", label,
            [this, self, sends = std::vector<Piece>(send.begin(), send.end()),
             receives = std::vector<Piece>(receive.begin(), receive.end())](const OperationName& name) {
              exchange(sends, receives, name);
              if (sends[self].bytes > 0)
                std::memcpy(receives[self].data, sends[self].data, sends[self].bytes);
            });
  }

  void all_reduce(std::span<float> values, Traffic traffic, std::string_view label) override {
    reduce(values, traffic, label);
  }
  void all_reduce(std::span<double> values, Traffic traffic, std::string_view label) override {
    reduce(values, traffic, label);
  }
  void all_reduce(std::span<std::uint64_t> values, Traffic traffic, std::string_view label) override {
    reduce(values, traffic, label);
  }

  void broadcast(void* buffer, Bytes bytes, int root, Traffic traffic, std::string_view label) override {
    if (rank_ == root) count(traffic, bytes * static_cast<Bytes>(size_ - 1));
    std::vector<Piece> send(static_cast<std::size_t>(size_)), receive(send.size());
    for (std::size_t r = 0; r < send.size(); ++r)
      if (rank_ == root && static_cast<int>(r) != root) send[r] = {buffer, bytes};
    if (rank_ != root) receive[static_cast<std::size_t>(root)] = {buffer, bytes};
    enqueue("broadcast", label,
            [this, send = std::move(send), receive = std::move(receive)](const OperationName& name) {
              exchange(send, receive, name);
            });
  }

  void barrier(std::string_view label) override {
    enqueue("barrier", label, [this](const OperationName& name) {
      std::vector<MPI_Request> requests(1);
      check_mpi(MPI_Ibarrier(comm_.get(), requests.data()), "MPI_Ibarrier");
      wait_for(requests, name, options_.timeout_seconds);
    });
    device_.host_wait(device_.record(Lane::communicate));
  }

  std::unique_ptr<Communicator> split(int color, int key) override {
    MPI_Comm part = MPI_COMM_NULL;
    enqueue("split", "split", [this, color, key, &part](const OperationName&) {
      check_mpi(MPI_Comm_split(comm_.get(), color, key, &part), "MPI_Comm_split");
    });
    device_.host_wait(device_.record(Lane::communicate));
    return std::make_unique<MpiCommunicator>(device_, options_, part);
  }

  TrafficCounters counters() const override { return counters_; }

 private:
  template <class Work>
  void enqueue(const char* operation, std::string_view label, Work work) {
    OperationName name{operation, sequence_++, std::string(label)};
    device_.enqueue(Lane::communicate, operation, [this, name = std::move(name), work = std::move(work)] {
      if (check_calls_) compare_calls(name);
      work(name);
    });
  }

  // Sends send[r] to rank r and receives receive[r] from it, for every other rank.
  void exchange(const std::vector<Piece>& send, const std::vector<Piece>& receive,
                const OperationName& name) {
    const int tag = static_cast<int>(name.sequence & 0x7fff);
    std::vector<MPI_Request> requests;
    const auto each_message = [&](const Piece& piece, const auto& start) {
      for (Bytes done = 0; done < piece.bytes; done += largest_message_bytes) {
        requests.emplace_back();
        start(static_cast<std::byte*>(piece.data) + done,
              static_cast<int>(std::min(largest_message_bytes, piece.bytes - done)));
      }
    };
    for (int step = 1; step < size_; ++step) {  // start with the next rank, so that not all send to one first
      const int to = (rank_ + step) % size_, from = (rank_ + size_ - step) % size_;
      each_message(receive[static_cast<std::size_t>(from)], [&](std::byte* data, int bytes) {
        check_mpi(MPI_Irecv(data, bytes, MPI_BYTE, from, tag, comm_.get(), &requests.back()), "MPI_Irecv");
      });
      each_message(send[static_cast<std::size_t>(to)], [&](std::byte* data, int bytes) {
        check_mpi(MPI_Isend(data, bytes, MPI_BYTE, to, tag, comm_.get(), &requests.back()), "MPI_Isend");
      });
    }
    if (!requests.empty()) wait_for(requests, name, options_.timeout_seconds);
  }

  template <class T>
  void reduce(std::span<T> values, Traffic traffic, std::string_view label) {
    count(traffic, values.size_bytes() * static_cast<Bytes>(size_ - 1));
    enqueue("all_reduce", label, [this, values](const OperationName& name) {
      const auto ranks = static_cast<std::size_t>(size_);
      std::vector<T> all(ranks * values.size());
      std::vector<Piece> send(ranks), receive(ranks);
      for (std::size_t r = 0; r < ranks; ++r)
        if (static_cast<int>(r) != rank_) {
          send[r] = {values.data(), values.size_bytes()};
          receive[r] = {all.data() + r * values.size(), values.size_bytes()};
        }
      exchange(send, receive, name);
      std::copy(values.begin(), values.end(),
                all.begin() + static_cast<std::ptrdiff_t>(values.size()) * rank_);
      for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] = all[i];
        for (std::size_t r = 1; r < ranks; ++r) values[i] += all[r * values.size() + i];
      }
    });
  }

  // All ranks say which call they are in; a difference ends the job with both named.
  void compare_calls(const OperationName& name) {
    std::vector<CallHeader> headers(static_cast<std::size_t>(size_));
    CallHeader& own = headers[static_cast<std::size_t>(rank_)];
    own.sequence = name.sequence;
    std::strncpy(own.operation.data(), name.operation, own.operation.size() - 1);
    std::strncpy(own.label.data(), name.label.c_str(), own.label.size() - 1);
    std::vector<Piece> send(headers.size(), Piece{&own, sizeof own}), receive;
    for (CallHeader& header : headers) receive.push_back({&header, sizeof header});
    exchange(send, receive, {"call check", name.sequence, name.label});
    for (std::size_t r = 0; r < headers.size(); ++r) {
      const CallHeader& other = headers[r];
      if (other.operation == own.operation && other.label == own.label && other.sequence == own.sequence)
        continue;
      throw Error(fmt::format(
          "ranks took different paths: rank {} is in {} #{} of \"{}\", rank {} in {} #{} of \"{}\".", rank_,
          own.operation.data(), own.sequence, own.label.data(), r, other.operation.data(), other.sequence,
          other.label.data()));
    }
  }

  void count(Traffic traffic, Bytes bytes) {
    switch (traffic) {
      case Traffic::all_gather:
        counters_.all_gather_bytes += bytes;
        break;
      case Traffic::reduce_scatter:
        counters_.reduce_scatter_bytes += bytes;
        break;
      case Traffic::all_reduce:
        counters_.all_reduce_bytes += bytes;
        break;
      case Traffic::control:
        counters_.control_bytes += bytes;
        break;
    }
  }

  Device& device_;
  CommunicatorOptions options_;
  Owned<CommTraits> comm_;
  int rank_ = 0, size_ = 1;
  bool check_calls_ = false;
  std::uint64_t sequence_ = 0;
  TrafficCounters counters_;
};

}  // namespace

// The module's only entry (mpi_module.cpp looks it up by name).
extern "C" Communicator* headrace_make_mpi_communicator(Device* device, const CommunicatorOptions* options) {
  ensure_mpi();
  MPI_Comm copy = MPI_COMM_NULL;
  check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &copy), "MPI_Comm_dup");
  return new MpiCommunicator(*device, *options, copy);
}

}  // namespace headrace

#include <cstring>

#include "headrace/communicator.h"
#include "headrace/errors.h"

namespace headrace {
namespace {

// One rank: everything is already where it belongs, and nothing is sent.
class SingleCommunicator final : public Communicator {
 public:
  explicit SingleCommunicator(Device& device) : device_(device) {}
  int rank() const override { return 0; }
  int size() const override { return 1; }
  void all_gather(void*, std::span<const Bytes> piece_bytes, Traffic, std::string_view) override {
    HEADRACE_CHECK(piece_bytes.size() == 1, "{} pieces, 1 rank", piece_bytes.size());
  }
  void all_to_all(std::span<const Piece> send, std::span<const Piece> receive, Traffic,
                  std::string_view) override {
    HEADRACE_CHECK(send.size() == 1 && receive.size() == 1, "{} pieces, 1 rank", send.size());
    HEADRACE_CHECK(send[0].bytes == receive[0].bytes, "own piece of {} and {} bytes", send[0].bytes,
                   receive[0].bytes);
    if (send[0].data != receive[0].data)
      device_.copy(Lane::communicate, receive[0].data, send[0].data, send[0].bytes);
  }
  void all_reduce(std::span<float>, Traffic, std::string_view) override {}
  void all_reduce(std::span<double>, Traffic, std::string_view) override {}
  void all_reduce(std::span<std::uint64_t>, Traffic, std::string_view) override {}
  void broadcast(void*, Bytes, int root, Traffic, std::string_view) override {
    HEADRACE_CHECK(root == 0, "broadcast from rank {} of 1", root);
  }
  void barrier(std::string_view) override { device_.host_wait(device_.record(Lane::communicate)); }
  std::unique_ptr<Communicator> split(int, int) override {
    return std::make_unique<SingleCommunicator>(device_);
  }
  TrafficCounters counters() const override { return {}; }

 private:
  Device& device_;
};

}  // namespace

std::unique_ptr<Communicator> make_single_communicator(Device& device) {
  return std::make_unique<SingleCommunicator>(device);
}

}  // namespace headrace

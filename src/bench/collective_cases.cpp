#include "src/bench/collective_cases.h"

#include <cstring>
#include <vector>

#include "headrace/errors.h"
#include "src/bench/pattern.h"

namespace headrace {
namespace {

using Piece = Communicator::Piece;

constexpr std::string_view label = "benchmark";

class Case : public CollectiveCase {
 public:
  Case(const CollectiveBench& bench, Collective collective, std::uint64_t numel, Bytes element_bytes)
      : bench_(bench), collective_(collective), numel_(numel), element_bytes_(element_bytes) {}

 protected:
  int rank() const { return bench_.rank(); }
  int ranks() const { return bench_.ranks(); }
  Bytes bytes() const { return numel_ * element_bytes_; }
  // Of the vector, in elements.
  Slice slice(int owner) const { return slice_of(numel_, owner, ranks()); }
  Slice own() const { return slice(rank()); }

  // The vector on the host, all 0.
  std::span<std::byte> blank() const {
    std::memset(bench_.staging.data(), 0, bytes());
    return bench_.staging.first(bytes());
  }
  void upload() const {
    bench_.device.copy(Lane::communicate, bench_.vector, bench_.staging.data(), bytes());
    bench_.device.fill_zero(Lane::communicate, bench_.slices, slices_bytes(bytes(), ranks()));
    bench_.device.fill_zero(Lane::communicate, bench_.sums, own().count * element_bytes_);
    bench_.device.synchronize();
  }
  std::span<const std::byte> download(const void* memory, Bytes count) const {
    bench_.device.copy(Lane::communicate, bench_.staging.data(), memory, count);
    bench_.device.synchronize();
    return bench_.staging.first(count);
  }

  // Slice r of every rank's vector goes to rank r.
  void exchange_slices(Traffic traffic) const {
    std::vector<Piece> send, receive;
    const Bytes own_bytes = own().count * element_bytes_;
    for (int r = 0; r < ranks(); ++r) {
      const Slice to = slice(r);
      send.push_back({bench_.vector + to.first * element_bytes_, to.count * element_bytes_});
      receive.push_back({slice_from(r), own_bytes});
    }
    bench_.communicator.all_to_all(send, receive, traffic, label);
  }
  std::byte* slice_from(int sender) const {
    return bench_.slices + static_cast<Bytes>(sender) * slice_stride_bytes(bytes(), ranks());
  }

  void check_pattern(std::span<const std::byte> memory, int sender, Bytes position) const {
    if (const auto offset = pattern_mismatch(memory, static_cast<std::uint64_t>(sender), position))
      refuse(position + *offset, sender);
  }
  void check_sums(std::span<const std::byte> memory, std::uint64_t first) const {
    for (std::uint64_t i = 0; i < memory.size() / sizeof(float); ++i) {
      float sum = 0, expected = 0;
      std::memcpy(&sum, memory.data() + i * sizeof(float), sizeof(float));
      for (int r = 0; r < ranks(); ++r) expected += summand(r, first + i);
      if (sum != expected) refuse((first + i) * sizeof(float), std::nullopt);
    }
  }
  [[noreturn]] void refuse(Bytes offset, std::optional<int> sender) const {
    throw Error(fmt::format(
        "{} of {} over {} ranks: rank {} holds wrong data at offset {} of the vector{}. The memory, the "
        "devices or the links between them are not sound.",
        name_of(collective_), size_text(bytes()), ranks(), rank(), offset,
        sender ? fmt::format(", which came from rank {}", *sender) : ""));
  }

  const CollectiveBench bench_;
  const Collective collective_;
  const std::uint64_t numel_;
  const Bytes element_bytes_;
};

class AllGather final : public Case {
 public:
  AllGather(const CollectiveBench& bench, Bytes bytes) : Case(bench, Collective::all_gather, bytes, 1) {
    for (int r = 0; r < ranks(); ++r) pieces_.push_back(slice(r).count);
  }
  void load() override {
    fill_pattern(blank().subspan(own().first, own().count), static_cast<std::uint64_t>(rank()), own().first);
    upload();
  }
  void call() override { bench_.communicator.all_gather(bench_.vector, pieces_, Traffic::all_gather, label); }
  void check() override {
    const auto vector = download(bench_.vector, bytes());
    for (int r = 0; r < ranks(); ++r)
      check_pattern(vector.subspan(slice(r).first, slice(r).count), r, slice(r).first);
  }

 private:
  std::vector<Bytes> pieces_;
};

// As the engine reduces gradients: the sum is made where the slices arrive, in rank order.
class ReduceScatter final : public Case {
 public:
  ReduceScatter(const CollectiveBench& bench, Bytes bytes)
      : Case(bench, Collective::reduce_scatter, bytes / sizeof(float), sizeof(float)) {}
  void load() override {
    load_summands(blank(), rank());
    upload();
  }
  void call() override {
    exchange_slices(Traffic::reduce_scatter);
    std::vector<const void*> slices(static_cast<std::size_t>(ranks()));
    for (int r = 0; r < ranks(); ++r) slices[static_cast<std::size_t>(r)] = slice_from(r);
    bench_.kernels.sum_slices(Lane::communicate, slices, DType::f32, own().count, bench_.sums, false);
  }
  void check() override { check_sums(download(bench_.sums, own().count * sizeof(float)), own().first); }

  static void load_summands(std::span<std::byte> memory, int rank) {
    for (std::uint64_t i = 0; i < memory.size() / sizeof(float); ++i) {
      const float value = summand(rank, i);
      std::memcpy(memory.data() + i * sizeof(float), &value, sizeof(float));
    }
  }
};

class AllReduce final : public Case {
 public:
  AllReduce(const CollectiveBench& bench, Bytes bytes)
      : Case(bench, Collective::all_reduce, bytes / sizeof(float), sizeof(float)) {}
  void load() override {
    ReduceScatter::load_summands(blank(), rank());
    upload();
  }
  void call() override {
    const std::span<float> values(reinterpret_cast<float*>(bench_.vector), numel_);
    bench_.communicator.all_reduce(values, Traffic::all_reduce, label);
  }
  void check() override { check_sums(download(bench_.vector, bytes()), 0); }
};

class Broadcast final : public Case {
 public:
  Broadcast(const CollectiveBench& bench, Bytes bytes) : Case(bench, Collective::broadcast, bytes, 1) {}
  void load() override {
    const auto vector = blank();
    if (rank() == broadcast_root) fill_pattern(vector, broadcast_root);
    upload();
  }
  void call() override {
    bench_.communicator.broadcast(bench_.vector, bytes(), broadcast_root, Traffic::control, label);
  }
  void check() override { check_pattern(download(bench_.vector, bytes()), broadcast_root, 0); }
};

class AllToAll final : public Case {
 public:
  AllToAll(const CollectiveBench& bench, Bytes bytes) : Case(bench, Collective::all_to_all, bytes, 1) {}
  void load() override {
    fill_pattern(blank(), static_cast<std::uint64_t>(rank()));
    upload();
  }
  void call() override { exchange_slices(Traffic::control); }
  void check() override {
    for (int r = 0; r < ranks(); ++r) check_pattern(download(slice_from(r), own().count), r, own().first);
  }
};

}  // namespace

std::shared_ptr<CollectiveCase> make_collective_case(const CollectiveBench& bench, Collective collective,
                                                     Bytes bytes) {
  switch (collective) {
    case Collective::all_gather:
      return std::make_shared<AllGather>(bench, bytes);
    case Collective::reduce_scatter:
      return std::make_shared<ReduceScatter>(bench, bytes);
    case Collective::all_reduce:
      return std::make_shared<AllReduce>(bench, bytes);
    case Collective::broadcast:
      return std::make_shared<Broadcast>(bench, bytes);
    case Collective::all_to_all:
      return std::make_shared<AllToAll>(bench, bytes);
  }
  throw Error("unknown collective");
}

}  // namespace headrace

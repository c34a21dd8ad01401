#include "gpu/cuda_lane.h"

#include <algorithm>
#include <cstring>

#include "gpu/cuda_status.h"
#include "headrace/errors.h"

namespace headrace {
namespace {

constexpr Bytes bounce_bytes = Bytes{2} << 20;
constexpr Bytes small_bytes = Bytes{64} << 10;

// Transfers and communication are short and others wait for them: they go before compute.
int priority_of(Lane lane) {
  int least = 0, greatest = 0;
  check_cuda(cudaDeviceGetStreamPriorityRange(&least, &greatest), "ask for the priorities of streams");
  return lane == Lane::compute ? least : greatest;
}

CudaStream make_stream(Lane lane) {
  cudaStream_t stream = nullptr;
  check_cuda(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, priority_of(lane)),
             fmt::format("create the stream of the {} lane", name_of(lane)));
  return CudaStream(stream);
}

PinnedBytes make_pinned(Bytes bytes) {
  void* memory = nullptr;
  check_cuda(cudaHostAlloc(&memory, bytes, cudaHostAllocDefault),
             fmt::format("pin {} of host memory for copies of pageable memory", format_bytes(bytes)));
  return PinnedBytes(memory);
}

}  // namespace

CudaLane::CudaLane(Lane lane, EventPool& events, FirstFailure& failure, bool synchronous)
    : lane_(lane),
      events_(events),
      failure_(failure),
      synchronous_(synchronous),
      stream_(make_stream(lane)),
      bounce_(make_pinned(bounce_bytes)),
      small_memory_(make_pinned(small_bytes * small_.size())),
      clock_(lane, events) {}

// A failed device may still call a host function that it had taken up: what that would touch stays.
CudaLane::~CudaLane() {
  for (auto& work : host_work_) {
    auto state = HostWork::State::queued;
    if (work->state.compare_exchange_strong(state, HostWork::State::abandoned))
      (void)work.release();  // NOLINT: see above
    else
      work->wait_if_running();
  }
}

void CudaLane::fail(const char* name, const std::string& why) {
  failure_.set(fmt::format("in {} on the {} lane", name, name_of(lane_)),
               std::make_exception_ptr(Error(why)));
}

void CudaLane::launching(const char*) {
  clock_.busy(stream());
}

void CudaLane::launched(const char* name) {
  submit(name, cudaGetLastError());
}

void CudaLane::submit(const char* name, cudaError_t status) {
  constexpr std::size_t remembered = 64;
  if (recent_.size() >= remembered) recent_.pop_front();
  recent_.push_back({name, clock_.marked()});
  if (status == cudaSuccess && synchronous_) status = cudaStreamSynchronize(stream());
  if (status != cudaSuccess) fail(name, fmt::format("CUDA failed: {}", cuda_error_text(status)));
}

void CudaLane::copy(void* destination, const void* source, Bytes bytes) {
  launching("copy");
  clock_.times().copied_bytes += bytes;
  submit("copy", cudaMemcpyAsync(destination, source, bytes, cudaMemcpyDefault, stream()));
}

// False when the next slot has not been emptied yet.
bool CudaLane::take_over(void* device, const void* source, Bytes bytes) {
  SmallSlot& slot = small_[next_small_];
  if (slot.emptied) {
    if (cudaEventQuery(slot.emptied->get()) != cudaSuccess) return false;
    cudaEventSynchronize(slot.emptied->get());  // over already: order rests on a wait, never on a query
  }
  void* const memory = static_cast<std::byte*>(small_memory_.get()) + next_small_ * small_bytes;
  next_small_ = (next_small_ + 1) % small_.size();
  std::memcpy(memory, source, bytes);
  copy(device, memory, bytes);
  slot.emptied = events_.record(lane_, stream());
  return true;
}

void CudaLane::copy_from_pageable(void* device, const void* source, Bytes bytes) {
  if (bytes <= small_bytes && !host_memory_changes_ && take_over(device, source, bytes)) return;
  auto* to = static_cast<std::byte*>(device);
  const auto* from = static_cast<const std::byte*>(source);
  for (Bytes done = 0; done < bytes && active();) {
    const Bytes piece = std::min(bounce_bytes, bytes - done);
    enqueue("copy", [bounce = bounce_.get(), at = from + done, piece] { std::memcpy(bounce, at, piece); });
    copy(to + done, bounce_.get(), piece);
    done += piece;
  }
}

void CudaLane::copy_to_pageable(void* destination, const void* device, Bytes bytes) {
  auto* to = static_cast<std::byte*>(destination);
  const auto* from = static_cast<const std::byte*>(device);
  for (Bytes done = 0; done < bytes && active();) {
    const Bytes piece = std::min(bounce_bytes, bytes - done);
    copy(bounce_.get(), from + done, piece);
    enqueue("copy", [bounce = bounce_.get(), at = to + done, piece] { std::memcpy(at, bounce, piece); });
    done += piece;
  }
}

void CudaLane::fill_zero(void* destination, Bytes bytes) {
  launching("fill");
  submit("fill", cudaMemsetAsync(destination, 0, bytes, stream()));
}

void CudaLane::run_host_work(void* work) {
  auto& self = *static_cast<HostWork*>(work);
  auto state = HostWork::State::queued;
  if (!self.state.compare_exchange_strong(state, HostWork::State::running)) return;  // its lane has gone
  if (!self.lane->failure_.failed()) try {
      self.work();
    } catch (...) {
      self.lane->failure_.set(fmt::format("in {} on the {} lane", self.name, name_of(self.lane->lane_)),
                              std::current_exception());
    }
  self.work = nullptr;  // what it holds goes with it
  self.state.store(HostWork::State::done, std::memory_order_release);
  self.state.notify_all();
}

void CudaLane::HostWork::wait_if_running() const {
  state.wait(State::running, std::memory_order_acquire);
}

void CudaLane::settle() {
  for (const auto& work : host_work_) work->wait_if_running();
}

void CudaLane::enqueue(const char* name, std::function<void()> work) {
  while (!host_work_.empty() && host_work_.front()->done()) host_work_.pop_front();
  host_work_.push_back(std::make_unique<HostWork>(this, name, std::move(work)));
  host_memory_changes_ = true;
  launching(name);
  submit(name, cudaLaunchHostFunc(stream(), run_host_work, host_work_.back().get()));
}

std::shared_ptr<EventPool::Recorded> CudaLane::record() {
  return clock_.idle(stream());
}

void CudaLane::wait(const EventPool::Recorded& event) {
  host_memory_changes_ = true;
  clock_.stalled_on(event.lane(), stream());
  submit("wait", cudaStreamWaitEvent(stream(), event.get(), 0));
  clock_.idle(stream());
}

std::string CudaLane::unfinished() {
  while (!recent_.empty() && recent_.front().marker < clock_.passed()) recent_.pop_front();
  std::string text;
  std::size_t further = 0;
  constexpr std::size_t shown = 4;
  std::vector<std::string_view> names;
  for (const Named& each : recent_) {
    const std::string_view name = each.name;
    if (name == "wait" || std::find(names.begin(), names.end(), name) != names.end()) continue;
    if (names.size() < shown)
      names.push_back(name);
    else
      ++further;
  }
  if (names.empty()) return text;
  return fmt::format("{}: {}{}", name_of(lane_), fmt::join(names, ", "),
                     further > 0 ? fmt::format(" and {} more", further) : "");
}

LaneTimes CudaLane::times() {
  clock_.harvest();
  return clock_.times();
}

}  // namespace headrace

#include "gpu/event_pool.h"

namespace headrace {

CudaEvent EventPool::take(cudaError_t& status) {
  {
    const std::lock_guard lock(mutex_);
    if (!free_.empty()) {
      CudaEvent event = std::move(free_.back());
      free_.pop_back();
      return event;
    }
  }
  cudaEvent_t event = nullptr;
  status = cudaEventCreateWithFlags(&event, cudaEventBlockingSync);
  return CudaEvent(event);
}

void EventPool::give_back(CudaEvent event) {
  if (!event) return;
  const std::lock_guard lock(mutex_);
  free_.push_back(std::move(event));
}

std::shared_ptr<EventPool::Recorded> EventPool::record(Lane lane, cudaStream_t stream, cudaError_t* status) {
  cudaError_t own = cudaSuccess;
  cudaError_t& result = status == nullptr ? own : *status;
  result = cudaSuccess;
  CudaEvent event = take(result);
  if (event) result = cudaEventRecord(event.get(), stream);
  if (result != cudaSuccess) return nullptr;
  return std::make_shared<Recorded>(std::move(event), lane, shared_from_this());
}

}  // namespace headrace

// CUDA events, used again and again: creating one costs more than recording it. Thread-safe.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "gpu/cuda_handles.h"
#include "headrace/device.h"

namespace headrace {

class EventPool : public std::enable_shared_from_this<EventPool> {
 public:
  // An event of its own, given back to the pool when the last copy goes.
  class Recorded final : public Event::State {
   public:
    Recorded(CudaEvent event, Lane lane, std::shared_ptr<EventPool> pool)
        : event_(std::move(event)), lane_(lane), pool_(std::move(pool)) {}
    ~Recorded() override { pool_->give_back(std::move(event_)); }
    Recorded(const Recorded&) = delete;
    Recorded& operator=(const Recorded&) = delete;
    cudaEvent_t get() const { return event_.get(); }
    Lane lane() const { return lane_; }

   private:
    CudaEvent event_;
    Lane lane_;
    std::shared_ptr<EventPool> pool_;
  };

  // Recorded on the stream now. Null when CUDA refuses: the device has failed, and *status says how.
  std::shared_ptr<Recorded> record(Lane lane, cudaStream_t stream, cudaError_t* status = nullptr);

 private:
  void give_back(CudaEvent event);
  CudaEvent take(cudaError_t& status);
  std::mutex mutex_;
  std::vector<CudaEvent> free_;
};

}  // namespace headrace

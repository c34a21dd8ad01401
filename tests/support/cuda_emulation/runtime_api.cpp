// The functions of the CUDA runtime that gpu/ uses. One owner thread calls them, except where a real runtime
// allows others; calls from host functions are violations, as a real runtime forbids them.
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "support/cuda_emulation/accesses.h"
#include "support/cuda_emulation/memory.h"
#include "support/cuda_emulation/options.h"
#include "support/cuda_emulation/runtime.h"
#include "support/cuda_emulation/stream.h"
#include "support/cuda_emulation/wait_sites.h"
#include "support/cuda_emulation/work_log.h"

using namespace cuda_emulation;

namespace {

struct EmulatedEvent {
  std::shared_ptr<Completion> completion;
  bool timed = true;
};

std::atomic<cudaError_t> last_error{cudaSuccess};
thread_local int current_device = 0;
thread_local bool in_host_function = false;
// The thread that creates streams; the host's clock is its: what others see orders nothing for it.
std::thread::id owner_thread;

Stream& stream_of(cudaStream_t stream) {
  if (stream == nullptr) violation("the default stream is used: it would order all others");
  return *reinterpret_cast<Stream*>(stream);
}
EmulatedEvent& event_of(cudaEvent_t event) {
  return *reinterpret_cast<EmulatedEvent*>(event);
}

cudaError_t failed(cudaError_t status) {
  last_error = status;
  return status;
}

// The status of a call that has done its part: a failed device fails all of them.
cudaError_t enter() {
  if (in_host_function) violation("a host function calls the CUDA runtime");
  return device_has_failed() ? failed(static_cast<cudaError_t>(device_failure())) : cudaSuccess;
}

void saw(const std::shared_ptr<Completion>& completion) {
  if (completion && std::this_thread::get_id() == owner_thread) host_has_seen(*completion);
}

// Host functions of all streams are run one at a time, as a real runtime may do.
std::mutex& host_functions() {
  static std::mutex* const one = new std::mutex;
  return *one;
}

const MemoryRange& copied_range(const void* address, const char* which) {
  const MemoryRange* range = range_of(reinterpret_cast<std::uintptr_t>(address));
  if (range == nullptr) refuse_freed(reinterpret_cast<std::uintptr_t>(address));
  if (range == nullptr)
    violation(fmt::format(
        "an asynchronous copy whose {} is pageable memory: a real one would block the caller", which));
  return *range;
}

// Its use ends here.
void note_freeing_of(const void* pointer) {
  const auto at = reinterpret_cast<std::uintptr_t>(pointer);
  if (const MemoryRange* range = range_of(at); range != nullptr && range->base == at) note_freeing(*range);
}

void check_direction(const MemoryRange& destination, const MemoryRange& source, cudaMemcpyKind kind) {
  const cudaMemcpyKind actual = destination.device
                                    ? (source.device ? cudaMemcpyDeviceToDevice : cudaMemcpyHostToDevice)
                                    : (source.device ? cudaMemcpyDeviceToHost : cudaMemcpyHostToHost);
  if (kind != cudaMemcpyDefault && kind != actual)
    violation(fmt::format("a copy of kind {} between memories of kind {}", static_cast<int>(kind),
                          static_cast<int>(actual)));
}

}  // namespace

void cuda_emulation::fail_launch(cudaError_t status) {
  failed(status);
}

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  if (options().devices == 0) return failed(cudaErrorNoDevice);
  *count = options().devices;
  return enter();
}

cudaError_t cudaInitDevice(int device, unsigned, unsigned) {
  return device < 0 || device >= options().devices ? failed(cudaErrorInvalidDevice) : enter();
}

cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= options().devices) return failed(cudaErrorInvalidDevice);
  current_device = device;
  return enter();
}

cudaError_t cudaGetDevice(int* device) {
  *device = current_device;
  return enter();
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  *properties = {};
  std::strcpy(properties->name, "emulated device");
  properties->totalGlobalMem = options().device_memory_bytes;
  properties->major = 9;
  properties->multiProcessorCount = 4;
  properties->asyncEngineCount = 3;
  properties->sharedMemPerBlockOptin = 227 << 10;
  properties->warpSize = 32;
  return enter();
}

cudaError_t cudaDeviceGetPCIBusId(char* id, int length, int device) {
  std::snprintf(id, static_cast<std::size_t>(length), "ffff:%02x:00.0", device + 1);
  return enter();
}

cudaError_t cudaMemGetInfo(std::size_t* free_bytes, std::size_t* total_bytes) {
  *total_bytes = options().device_memory_bytes;
  *free_bytes = *total_bytes - device_bytes_in_use();
  return enter();
}

cudaError_t cudaMalloc(void** pointer, std::size_t bytes) {
  if (bytes == 0) {
    *pointer = nullptr;
    return enter();
  }
  *pointer = fails_now("cudaMalloc") ? nullptr : allocate_device(bytes);
  return *pointer == nullptr ? failed(cudaErrorMemoryAllocation) : enter();
}

cudaError_t cudaFree(void* pointer) {
  if (pointer == nullptr) return enter();
  note_freeing_of(pointer);
  return free_device(pointer) ? enter() : failed(cudaErrorInvalidValue);
}

cudaError_t cudaHostRegister(void* pointer, std::size_t bytes, unsigned) {
  if (fails_now("cudaHostRegister")) return failed(cudaErrorMemoryAllocation);
  if (bytes == 0) return failed(cudaErrorInvalidValue);
  return register_host(pointer, bytes) ? cudaSuccess : failed(cudaErrorHostMemoryAlreadyRegistered);
}

cudaError_t cudaHostUnregister(void* pointer) {
  note_freeing_of(pointer);
  return unregister_host(pointer) ? cudaSuccess : failed(cudaErrorHostMemoryNotRegistered);
}

cudaError_t cudaHostAlloc(void** pointer, std::size_t bytes, unsigned) {
  if (fails_now("cudaHostAlloc")) return failed(cudaErrorMemoryAllocation);
  *pointer = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
  register_host(*pointer, bytes);
  return enter();
}

cudaError_t cudaFreeHost(void* pointer) {
  note_freeing_of(pointer);
  if (!unregister_host(pointer)) return failed(cudaErrorInvalidValue);
  std::free(pointer);
  return enter();
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  *attributes = {};
  const MemoryRange* range = range_of(reinterpret_cast<std::uintptr_t>(pointer));
  attributes->type = range == nullptr ? cudaMemoryTypeUnregistered
                     : range->device  ? cudaMemoryTypeDevice
                                      : cudaMemoryTypeHost;
  return enter();
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int) {
  if ((flags & cudaStreamNonBlocking) == 0) violation("a stream that the default stream would order");
  owner_thread = std::this_thread::get_id();
  *stream = reinterpret_cast<cudaStream_t>(new Stream);
  return enter();
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return enter();
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  delete &stream_of(stream);
  return enter();
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  const auto completion = stream_of(stream).record();
  if (!wait_is_dropped("synchronize", 1)) {
    completion->wait();
    saw(completion);
  }
  return enter();
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  const auto completion = stream_of(stream).record();
  if (const cudaError_t status = enter(); status != cudaSuccess) return status;
  return completion->done ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  const auto completion = event_of(event).completion;
  if (completion && !wait_is_dropped("lane", 2)) stream_of(stream).wait(completion);
  return enter();
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  *event = reinterpret_cast<cudaEvent_t>(new EmulatedEvent{nullptr, (flags & cudaEventDisableTiming) == 0});
  return enter();
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete &event_of(event);
  return enter();
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  event_of(event).completion = stream_of(stream).record();
  return enter();
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  const auto completion = event_of(event).completion;
  // Orders nothing: a program whose order rests on what a query happened to say is not proven right by one
  // run.
  const bool done = !completion || completion->done;
  if (const cudaError_t status = enter(); status != cudaSuccess) return status;
  return done ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  const auto completion = event_of(event).completion;
  if (completion && !wait_is_dropped("host", 1)) {
    completion->wait();
    saw(completion);
  }
  return enter();
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  const EmulatedEvent &first = event_of(start), &last = event_of(end);
  if (!first.timed || !last.timed || !first.completion || !last.completion)
    return failed(cudaErrorInvalidResourceHandle);
  if (!first.completion->done || !last.completion->done) return cudaErrorNotReady;
  *milliseconds =
      std::chrono::duration<float, std::milli>(last.completion->when - first.completion->when).count();
  return enter();
}

cudaError_t cudaMemcpyAsync(void* destination, const void* source, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  if (const cudaError_t status = enter(); status != cudaSuccess || bytes == 0) return status;
  check_direction(copied_range(destination, "destination"), copied_range(source, "source"), kind);
  stream_of(stream).enqueue("copy", [=] {
    if (fails_now("copy")) return fail_device(cudaErrorUnknown);
    const void* from = readable(source, bytes);
    std::memcpy(writable(destination, bytes), from, bytes);
  });
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void* destination, int value, std::size_t bytes, cudaStream_t stream) {
  if (const cudaError_t status = enter(); status != cudaSuccess || bytes == 0) return status;
  stream_of(stream).enqueue("memset", [=] { std::memset(writable(destination, bytes), value, bytes); });
  return cudaSuccess;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  if (const cudaError_t status = enter(); status != cudaSuccess) return status;
  stream_of(stream).enqueue("host function", [=] {
    const std::lock_guard one_at_a_time(host_functions());
    in_host_function = true;
    function(data);
    in_host_function = false;
  });
  return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize() {
  violation("cudaDeviceSynchronize: wait for the streams that are meant");
}

cudaError_t cudaGetLastError() {
  const cudaError_t status =
      last_error.exchange(device_has_failed() ? static_cast<cudaError_t>(device_failure()) : cudaSuccess);
  return status;
}
cudaError_t cudaPeekAtLastError() {
  return last_error;
}

cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) {
  return enter();
}

const char* cudaGetErrorName(cudaError_t status) {
  switch (status) {
    case cudaSuccess:
      return "cudaSuccess";
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorIllegalAddress:
      return "cudaErrorIllegalAddress";
    case cudaErrorLaunchOutOfResources:
      return "cudaErrorLaunchOutOfResources";
    case cudaErrorNoDevice:
      return "cudaErrorNoDevice";
    case cudaErrorInsufficientDriver:
      return "cudaErrorInsufficientDriver";
    default:
      return "cudaErrorUnknown";
  }
}
const char* cudaGetErrorString(cudaError_t status) {
  switch (status) {
    case cudaSuccess:
      return "no error";
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorIllegalAddress:
      return "an illegal memory access was encountered";
    case cudaErrorLaunchOutOfResources:
      return "too many resources requested for launch";
    case cudaErrorNoDevice:
      return "no CUDA-capable device is detected";
    case cudaErrorInsufficientDriver:
      return "CUDA driver version is insufficient for CUDA runtime version";
    default:
      return "unknown error";
  }
}

}  // extern "C"

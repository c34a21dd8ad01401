#include "gpu/cuda_device.h"

#include <cstdlib>
#include <cstring>
#include <new>

#include "gpu/cuda_status.h"
#include "gpu/pci_link.h"
#include "headrace/errors.h"
#include "headrace/locality.h"
#include "headrace/log.h"

namespace headrace {
namespace {

constexpr Bytes page_bytes = 4096;
constexpr int oldest_major = 8;  // of compute capability: cmake/HeadraceCuda.cmake

int count_devices() {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status == cudaErrorNoDevice || status == cudaErrorInsufficientDriver ||
      (status == cudaSuccess && count == 0))
    throw UsageError(fmt::format(
        "this machine has no CUDA device to use: {}. Use --device cpu, or look at what nvidia-smi and "
        "CUDA_VISIBLE_DEVICES say.",
        cuda_error_text(status == cudaSuccess ? cudaErrorNoDevice : status)));
  check_cuda(status, "count the devices");
  return count;
}

// The device of a rank, of those that it sees: all of the host's, or its own alone (as Slurm binds them).
int select_device(int local_rank, int local_size) {
  const int count = count_devices();
  if (local_size > count && count > 1)
    throw UsageError(
        fmt::format("{} ranks were started on a machine with {} CUDA device{}: start one rank a device "
                    "(mpirun -n {}).",
                    local_size, count, count == 1 ? "" : "s", count));
  const int device = local_rank % count;
  // A host that waits sleeps: the cores belong to the optimizer and the swapper.
  check_cuda(cudaInitDevice(device, cudaDeviceScheduleBlockingSync, cudaInitDeviceFlagsAreValid),
             fmt::format("start device {}", device));
  check_cuda(cudaSetDevice(device), fmt::format("use device {}", device));
  return device;
}

DeviceInfo describe(int device) {
  cudaDeviceProp properties{};
  check_cuda(cudaGetDeviceProperties(&properties, device), "ask for the device's properties");
  if (properties.major < oldest_major)
    throw UsageError(fmt::format(
        "{} has compute capability {}.{}, but this program is built for {}.0 and newer. Use another device "
        "(CUDA_VISIBLE_DEVICES), or --device cpu.",
        properties.name, properties.major, properties.minor, oldest_major));
  char bus_id[32] = "";
  check_cuda(cudaDeviceGetPCIBusId(bus_id, sizeof(bus_id), device), "ask for the device's place on the bus");
  const PciLink link = pci_link_of(bus_id);
  return {.name = properties.name,
          .memory_capacity_bytes = 0,
          .async_copy = properties.asyncEngineCount > 0,
          .peer_access = false,
          .host_addressable = false,
          .compute_threads = properties.multiProcessorCount,
          .copy_engines = properties.asyncEngineCount,
          .link = link.name.empty() ? "unknown link" : link.name,
          .link_bytes_per_second = link.bytes_per_second,
          .near = describe(locality_of_pci(bus_id))};
}

bool asked_for_synchronous_lanes() {
  const char* value = std::getenv("HEADRACE_CUDA_SYNCHRONOUS");
  return value != nullptr && *value != '\0' && std::string_view(value) != "0";
}

// Memory that stays free for the context, the kernels' code and NCCL's buffers.
Bytes reserve_bytes(Bytes total_bytes) {
  constexpr Bytes most = Bytes{3} << 30;
  return std::min(total_bytes / 16, most);
}

}  // namespace

Bytes available_cuda_memory(int local_rank) {
  select_device(local_rank, 1);
  std::size_t free_bytes = 0, total_bytes = 0;
  check_cuda(cudaMemGetInfo(&free_bytes, &total_bytes), "ask how much device memory is free");
  const Bytes reserve = reserve_bytes(total_bytes);
  return free_bytes > reserve ? (free_bytes - reserve) / page_bytes * page_bytes : 0;
}

CudaDevice::CudaDevice(const CudaDeviceOptions& options) {
  device_ = select_device(options.local_rank, options.local_size);
  info_ = describe(device_);
  allocate_arena(options.memory_bytes);
  void* fault = nullptr;
  check_cuda(cudaHostAlloc(&fault, sizeof(KernelFault), cudaHostAllocMapped), "pin host memory");
  fault_.reset(fault);
  new (fault) KernelFault{};
  for (std::size_t lane = 0; lane < lane_count; ++lane)
    lanes_[lane] = std::make_unique<CudaLane>(static_cast<Lane>(lane), *events_, failure_,
                                              asked_for_synchronous_lanes());
}

CudaDevice::~CudaDevice() {
  for (auto& lane : lanes_) cudaStreamSynchronize(lane->stream());  // a lane may still wait for another one
  for (auto& lane : lanes_) lane.reset();
}

void CudaDevice::allocate_arena(Bytes bytes) {
  info_.memory_capacity_bytes = bytes;
  if (bytes == 0) return;
  void* memory = nullptr;
  // CUDA aligns to 256 bytes, the seam promises a page.
  const cudaError_t status = cudaMalloc(&memory, bytes + page_bytes);
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    std::size_t free_bytes = 0, total_bytes = 0;
    check_cuda(cudaMemGetInfo(&free_bytes, &total_bytes), "ask how much device memory is free");
    throw DoesNotFit(fmt::format(
        "{} of device memory were asked for, but {} has {} free of {}. Give a smaller --device-memory, or "
        "end what else uses the device (nvidia-smi lists it).",
        format_bytes(bytes), info_.name, format_bytes(free_bytes), format_bytes(total_bytes)));
  }
  check_cuda(status, fmt::format("allocate {} of device memory", format_bytes(bytes)));
  allocation_.reset(memory);
  const auto start = reinterpret_cast<std::uintptr_t>(memory);
  arena_ = reinterpret_cast<std::byte*>(round_up(start, page_bytes));
}

bool CudaDevice::in_arena(const void* address) const {
  const auto* at = static_cast<const std::byte*>(address);
  return at >= arena_ && at < arena_ + info_.memory_capacity_bytes;
}

CudaDevice::Place CudaDevice::place_of(const void* address, Bytes bytes) const {
  if (in_arena(address)) return Place::device;
  const auto* at = static_cast<const std::byte*>(address);
  {
    const std::lock_guard lock(pinned_mutex_);
    auto after = pinned_.upper_bound(at);
    if (after != pinned_.begin()) {
      const auto& [start, length] = *--after;
      if (at + bytes <= start + length) return Place::pinned;
      if (at < start + length) return Place::pageable;  // it begins in pinned memory and ends beside it
    }
  }
  cudaPointerAttributes attributes{};
  if (cudaPointerGetAttributes(&attributes, address) != cudaSuccess) return Place::pageable;
  if (attributes.type == cudaMemoryTypeDevice) return Place::device;
  return attributes.type == cudaMemoryTypeHost ? Place::pinned : Place::pageable;
}

void CudaDevice::copy(Lane lane, void* destination, const void* source, Bytes bytes) {
  if (bytes == 0 || failure_.failed()) return;
  const bool to_pageable = place_of(destination, bytes) == Place::pageable;
  const bool from_pageable = place_of(source, bytes) == Place::pageable;
  if (to_pageable && from_pageable)
    at(lane).enqueue("copy", [=] { std::memcpy(destination, source, bytes); });
  else if (to_pageable)
    at(lane).copy_to_pageable(destination, source, bytes);
  else if (from_pageable)
    at(lane).copy_from_pageable(destination, source, bytes);
  else
    at(lane).copy(destination, source, bytes);
}

void CudaDevice::fill_zero(Lane lane, void* destination, Bytes bytes) {
  if (bytes > 0 && !failure_.failed()) at(lane).fill_zero(destination, bytes);
}

void CudaDevice::enqueue(Lane lane, const char* name, std::function<void()> work) {
  if (!failure_.failed()) at(lane).enqueue(name, std::move(work));
}

Event CudaDevice::record(Lane lane) {
  auto event = at(lane).record();
  // An empty event counts as reached: the failure must be known before anyone waits for it.
  if (!event && !failure_.failed()) note_failure(at(lane).status());
  return Event(std::move(event));
}

void CudaDevice::wait(Lane lane, const Event& event) {
  if (event) at(lane).wait(static_cast<const EventPool::Recorded&>(*event.state()));
}

void CudaDevice::host_wait(const Event& event) {
  cudaError_t status = cudaSuccess;
  if (event) status = cudaEventSynchronize(static_cast<const EventPool::Recorded&>(*event.state()).get());
  check_wait(status);
}

void CudaDevice::synchronize() {
  cudaError_t status = cudaSuccess;
  for (auto& lane : lanes_) {
    const cudaError_t ended = cudaStreamSynchronize(lane->stream());
    if (status == cudaSuccess) status = ended;
  }
  check_wait(status);
  for (auto& lane : lanes_) lane->all_are_idle();
}

void CudaDevice::check_wait(cudaError_t status) {
  if (status != cudaSuccess) {
    note_failure(status);
    for (auto& lane : lanes_) lane->settle();
  } else {
    for (auto& lane : lanes_) lane->harvest();
  }
  if (const KernelFault& fault = *fault_word(); fault.code != 0)
    failure_.set("on the compute lane", std::make_exception_ptr(Error(describe(fault))));
  failure_.rethrow_if_failed();
}

// What CUDA says of a failed device does not tell which work failed; what had not ended narrows it down.
void CudaDevice::note_failure(cudaError_t status) {
  std::vector<std::string> unfinished;
  for (auto& lane : lanes_)
    if (std::string text = lane->unfinished(); !text.empty()) unfinished.push_back(std::move(text));
  failure_.set(
      fmt::format("one of: {}", fmt::join(unfinished, "; ")),
      std::make_exception_ptr(Error(fmt::format("the CUDA device failed: {}. Set HEADRACE_CUDA_SYNCHRONOUS=1 "
                                                "to learn in which operation, or run under "
                                                "compute-sanitizer",
                                                cuda_error_text(status)))));
}

bool CudaDevice::pin(std::span<std::byte> memory) {
  if (memory.empty()) return true;
  use_device();
  const cudaError_t status = cudaHostRegister(memory.data(), memory.size(), cudaHostRegisterPortable);
  if (status == cudaSuccess) {
    const std::lock_guard lock(pinned_mutex_);
    pinned_[memory.data()] = memory.size();
    return true;
  }
  cudaGetLastError();  // a refusal is not to be found by the next launch
  warn_once(
      "pin",
      fmt::format("{} of host memory could not be pinned ({}): copies from and to it are staged and slower, "
                  "results are the same. The system or the container limits how much memory may be locked "
                  "(ulimit -l, free -m).",
                  format_bytes(memory.size()), cuda_error_text(status)));
  return false;
}

void CudaDevice::unpin(std::span<std::byte> memory) noexcept {
  if (memory.empty()) return;
  {
    const std::lock_guard lock(pinned_mutex_);
    if (pinned_.erase(memory.data()) == 0) return;
  }
  use_device();
  if (cudaHostUnregister(memory.data()) != cudaSuccess)
    cudaGetLastError();  // not for the next launch to find
}

// Pinning may be asked for by any thread; a new one is on the first device.
void CudaDevice::use_device() const noexcept {
  int current = -1;
  if (cudaGetDevice(&current) != cudaSuccess || current != device_) cudaSetDevice(device_);
}

LaneTimes CudaDevice::times(Lane lane) const {
  return lanes_[static_cast<std::size_t>(lane)]->times();
}

std::unique_ptr<Device> make_cuda_device(const CudaDeviceOptions& options) {
  return std::make_unique<CudaDevice>(options);
}

CudaDevice* as_cuda_device(Device& device) {
  return dynamic_cast<CudaDevice*>(&device);
}

CudaDevice& cuda_device(Device& device) {
  CudaDevice* const found = as_cuda_device(device);
  HEADRACE_CHECK(found != nullptr, "device {} is not a CUDA device", device.info().name);
  return *found;
}

}  // namespace headrace

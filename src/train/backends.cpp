#include "src/train/backends.h"

#include "headrace/cpu_pool.h"
#include "headrace/errors.h"
#include "headrace/memory.h"

namespace headrace {

std::unique_ptr<Device> open_device(const BackendOptions& options) {
  if (options.device == DeviceKind::cuda)
    return make_cuda_device({.memory_bytes = options.device_memory_bytes,
                             .local_rank = options.launch.local_rank,
                             .local_size = options.launch.local_size});
  return make_cpu_device({.memory_bytes = options.device_memory_bytes,
                          .compute_threads = options.threads,
                          .link_bytes_per_second = options.link_bytes_per_second});
}

std::unique_ptr<DeviceKernels> open_kernels(const BackendOptions& options, Device& device) {
  return options.device == DeviceKind::cuda ? make_cuda_kernels(device) : make_cpu_kernels(device);
}

std::unique_ptr<Communicator> open_communicator(const BackendOptions& options, Device& device) {
  if (options.launch.size == 1) return make_single_communicator(device);
  const CommunicatorOptions communicator{.timeout_seconds = options.timeout_seconds};
  if (options.launch.launcher == "torchrun")
    throw UsageError(
        "the program runs under mpirun or srun; torchrun is for PyTorch programs. Start it as: mpirun -n 4 "
        "headrace ...");
  auto over_mpi = make_mpi_communicator(device, communicator);
  if (options.device == DeviceKind::cpu) return over_mpi;
  return make_nccl_communicator(device, std::move(over_mpi), communicator);
}

Bytes available_device_memory(DeviceKind device, const LaunchInfo& launch) {
  if (device == DeviceKind::cuda) return available_cuda_memory(launch.local_rank);
  return available_host_memory() / static_cast<Bytes>(launch.local_size);
}

OpsFactory ops_factory(DeviceKind device) {
  return device == DeviceKind::cuda ? make_cuda_ops : make_cpu_ops;
}

namespace {

std::unique_ptr<IoEngine> make_uring_or_say_who_asks(const IoEngineOptions& options) {
  try {
    return make_uring_engine(options);
  } catch (const Error& refusal) {
    throw Error(
        fmt::format("{} This run asks for it, by --io io_uring, --require-io-uring or headrace.io of its "
                    "configuration (which "
                    "`headrace tune` writes): with --io auto in their place threads do its work.",
                    refusal.what()));
  }
}

}  // namespace

std::unique_ptr<IoEngine> make_io(IoKind kind, IoEngineOptions options) {
  options.require_io_uring = kind == IoKind::io_uring;
  switch (kind) {
    case IoKind::io_uring:
      return make_uring_or_say_who_asks(options);
    case IoKind::threads:
      return make_thread_engine(options);
    case IoKind::automatic:
      break;
  }
  return make_io_engine(options);
}

IoEngineOptions io_options(const ResolvedOptions& options) {
  IoEngineOptions io;
  if (options.io_depth) io.queue_depth = *options.io_depth;
  if (options.io_request_bytes) io.request_bytes = *options.io_request_bytes;
  io.poll_completions = options.poll_completions;
  io.poll_submissions = options.poll_submissions;
  return io;
}

Backends make_backends(const ResolvedOptions& options, Bytes device_memory_bytes,
                       const CommunicatorMaker& communicator) {
  if (options.threads > 0) set_cpu_threads(options.threads);
  const BackendOptions open{.device = options.device,
                            .device_memory_bytes = device_memory_bytes,
                            .threads = options.threads,
                            .link_bytes_per_second = options.link_bytes_per_second,
                            .timeout_seconds = options.timeout_seconds,
                            .launch = options.launch};
  Backends backends;
  backends.device = open_device(open);
  backends.kernels = open_kernels(open, *backends.device);
  backends.communicator = communicator
                              ? communicator(*backends.device, {.timeout_seconds = options.timeout_seconds})
                              : open_communicator(open, *backends.device);
  if (resolve_placement(options.engine).uses_nvme() || options.checkpoint.any())
    backends.io = make_io(options.io, io_options(options));
  return backends;
}

void open_saver(const ResolvedOptions& options, Backends& backends) {
  if (options.engine.snapshot_buffers == 0) return;
  const BackendOptions open{.device = DeviceKind::cpu,
                            .device_memory_bytes = 0,
                            .threads = 1,
                            .link_bytes_per_second = 0,
                            .timeout_seconds = options.timeout_seconds,
                            .launch = options.launch};
  backends.saver_device = open_device(open);
  backends.saver_communicator = open_communicator(open, *backends.saver_device);
}

}  // namespace headrace

// What the CUDA device makes of refusals and faults that the emulation plays.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "gpu/cuda_device.h"
#include "gpu/elementwise_kernels.h"
#include "headrace/errors.h"
#include "support/cuda_emulation/options.h"
#include "support/cuda_emulation/stream.h"

namespace headrace {
namespace {

using cuda_emulation::options;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr Bytes memory_bytes = Bytes{1} << 20;

std::unique_ptr<Device> make_device() {
  return make_cuda_device({.memory_bytes = memory_bytes});
}

template <class Kind = Error>
std::string message_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Kind& error) {
    return error.what();
  }
  return "nothing was thrown";
}

void launch_sum(Device& device) {
  add(cuda_device(device).queue(Lane::compute), matrix(device.arena(), DType::f32, 1, 64),
      device.arena() + 4096, device.arena() + 8192);
}

// A failed device stays so for its process: the body runs in one of its own, which a wrong message ends
// with 1.
void expect_message(const std::function<void()>& body, const testing::Matcher<std::string>& wanted) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        const std::string message = message_of(body);
        std::fprintf(stderr, "%s\n", message.c_str());
        std::_Exit(wanted.Matches(message) ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}

TEST(CudaDeviceMemory, more_than_is_free_is_refused_with_what_there_is_and_leaves_nothing_behind) {
  const Bytes capacity = options().device_memory_bytes;
  EXPECT_THAT(message_of<DoesNotFit>([&] { make_cuda_device({.memory_bytes = capacity}); }),
              AllOf(HasSubstr("1.00 GiB of device memory"), HasSubstr("--device-memory")));
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  EXPECT_NO_THROW(make_cuda_device({.memory_bytes = capacity / 2}));
}

TEST(CudaDeviceMemory, what_is_available_leaves_a_reserve) {
  EXPECT_EQ(available_cuda_memory(0), options().device_memory_bytes / 16 * 15);
  const auto device = make_device();
  EXPECT_LT(available_cuda_memory(0), options().device_memory_bytes / 16 * 15);
}

TEST(CudaDeviceChoice, a_machine_without_a_device_says_what_to_do) {
  options().devices = 0;
  EXPECT_THAT(message_of<UsageError>([] { make_device(); }),
              AllOf(HasSubstr("--device cpu"), HasSubstr("nvidia-smi")));
  options().devices = 8;
}

TEST(CudaDeviceChoice, a_launcher_may_show_each_rank_one_device) {
  options().devices = 1;
  EXPECT_NO_THROW(make_cuda_device({.memory_bytes = memory_bytes, .local_rank = 3, .local_size = 4}));
  options().devices = 8;
}

TEST(CudaDeviceChoice, more_ranks_than_devices_are_refused) {
  options().devices = 2;
  EXPECT_NO_THROW(make_cuda_device({.memory_bytes = memory_bytes, .local_rank = 1, .local_size = 2}));
  EXPECT_THAT(message_of<UsageError>(
                  [] { make_cuda_device({.memory_bytes = memory_bytes, .local_rank = 1, .local_size = 3}); }),
              AllOf(HasSubstr("3 ranks"), HasSubstr("2 CUDA devices"), HasSubstr("mpirun -n 2")));
  options().devices = 8;
}

TEST(CudaDevicePinning, a_refusal_is_a_warning_and_copies_are_right_all_the_same) {
  const auto device = make_device();
  options().faults["cudaHostRegister"] = 1;
  std::vector<std::byte> sent(700001, std::byte{42}), received(sent.size());
  testing::internal::CaptureStderr();
  EXPECT_FALSE(device->pin(sent));
  EXPECT_TRUE(device->pin(received));
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("could not be pinned"));
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess) << "the refusal would be taken for a failed launch";
  device->copy(Lane::upload, device->arena(), sent.data(), sent.size());
  device->wait(Lane::download, device->record(Lane::upload));
  device->copy(Lane::download, received.data(), device->arena(), sent.size());
  device->synchronize();
  EXPECT_EQ(sent, received);
  device->unpin(sent);
  device->unpin(received);
}

TEST(CudaDevicePinning, a_range_that_was_unpinned_can_be_pinned_again) {
  const auto device = make_device();
  std::vector<std::byte> host(8192);
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(device->pin(host));
    device->unpin(host);
  }
}

TEST(CudaDeviceFailureDeathTest, a_refused_launch_names_kernel_and_lane) {
  expect_message(
      [] {
        const auto device = make_device();
        options().faults["launch"] = 1;
        launch_sum(*device);
        device->synchronize();
      },
      AllOf(HasSubstr("too many resources"), HasSubstr("in add on the compute lane")));
}

TEST(CudaDeviceFailureDeathTest,
     a_fault_as_a_kernel_runs_is_thrown_by_the_next_wait_with_what_had_not_ended) {
  expect_message(
      [] {
        const auto device = make_device();
        options().faults["kernel"] = 1;
        launch_sum(*device);
        device->host_wait(device->record(Lane::upload));
        device->synchronize();
      },
      AllOf(HasSubstr("illegal memory access"), HasSubstr("compute: add"),
            HasSubstr("HEADRACE_CUDA_SYNCHRONOUS"), Not(HasSubstr("download"))));
}

// The event of a failed device cannot be recorded: an empty one would count as reached.
TEST(CudaDeviceFailureDeathTest,
     a_fault_that_is_seen_first_as_an_event_is_recorded_is_thrown_by_the_wait_for_it) {
  expect_message(
      [] {
        const auto device = make_device();
        options().faults["kernel"] = 1;
        launch_sum(*device);
        while (!cuda_emulation::device_has_failed()) {
        }
        device->host_wait(device->record(Lane::download));
      },
      AllOf(HasSubstr("illegal memory access"), HasSubstr("compute: add")));
}

TEST(CudaDeviceFailureDeathTest, a_host_function_that_runs_is_waited_for_before_its_memory_goes) {
  expect_message(
      [] {
        std::atomic<bool> running{false}, ended{false};
        {
          auto device = make_device();
          device->enqueue(Lane::communicate, "slow", [&] {
            running = true;
            std::this_thread::sleep_for(std::chrono::milliseconds(100));
            ended = true;
          });
          while (!running) {
          }
          options().faults["kernel"] = 1;
          launch_sum(*device);
          message_of([&] { device->host_wait(device->record(Lane::compute)); });
        }
        throw Error(ended ? "ended" : "went while it ran");
      },
      testing::Eq("ended"));
}

TEST(CudaDeviceFailureDeathTest, synchronous_lanes_name_the_operation_itself) {
  ::setenv("HEADRACE_CUDA_SYNCHRONOUS", "1", 1);
  expect_message(
      [] {
        const auto device = make_device();
        device->fill_zero(Lane::compute, device->arena(), 100);
        options().faults["kernel"] = 1;
        launch_sum(*device);
        device->fill_zero(Lane::compute, device->arena(), 100);
        device->synchronize();
      },
      AllOf(HasSubstr("illegal memory access"), HasSubstr("in add on the compute lane")));
  ::unsetenv("HEADRACE_CUDA_SYNCHRONOUS");
}

TEST(CudaDeviceFailureDeathTest, a_failed_copy_stops_all_lanes_and_every_later_wait_throws_it_again) {
  expect_message(
      [] {
        const auto device = make_device();
        std::vector<std::byte> host(4096);
        device->pin(host);
        options().faults["copy"] = 1;
        device->copy(Lane::upload, device->arena(), host.data(), host.size());
        const std::string first = message_of([&] { device->synchronize(); });
        launch_sum(*device);
        if (message_of([&] { device->synchronize(); }) == first) device->host_wait(Event());
      },
      AllOf(HasSubstr("the CUDA device failed"), HasSubstr("upload: copy")));
}

}  // namespace
}  // namespace headrace

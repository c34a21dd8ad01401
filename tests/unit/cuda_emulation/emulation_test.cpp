// The emulation of the CUDA runtime: that right programs run, and that each kind of wrong one is found
// whatever the timing.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "support/cuda_emulation/options.h"
#include "unit/cuda_emulation/probe_kernels.h"

namespace headrace::testing {
namespace {

constexpr int violation_status = 86;

// Streams, and memory by the element.
class CudaEmulation : public ::testing::Test {
 protected:
  void SetUp() override {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
    for (cudaStream_t& stream : streams)
      ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  }
  void TearDown() override {
    for (cudaStream_t& stream : streams)
      if (stream != nullptr) cudaStreamDestroy(stream);
    for (const cudaEvent_t event : events) cudaEventDestroy(event);
  }
  template <class T>
  T* device(std::size_t numel) {
    void* memory = nullptr;
    EXPECT_EQ(cudaMalloc(&memory, numel * sizeof(T)), cudaSuccess);
    return static_cast<T*>(memory);
  }
  template <class T>
  T* pinned(std::size_t numel) {
    void* memory = nullptr;
    EXPECT_EQ(cudaHostAlloc(&memory, numel * sizeof(T), cudaHostAllocDefault), cudaSuccess);
    std::memset(memory, 0, numel * sizeof(T));
    return static_cast<T*>(memory);
  }
  template <class T>
  std::vector<T> download(const T* memory, std::size_t numel, std::size_t stream = 0) {
    T* const host = pinned<T>(numel);
    cudaMemcpyAsync(host, memory, numel * sizeof(T), cudaMemcpyDeviceToHost, streams[stream]);
    cudaStreamSynchronize(streams[stream]);
    const std::vector<T> values(host, host + numel);
    cudaFreeHost(host);
    return values;
  }
  cudaEvent_t recorded(std::size_t stream) {
    cudaEvent_t event = nullptr;
    cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    cudaEventRecord(event, streams[stream]);
    events.push_back(event);
    return event;
  }
  std::array<cudaStream_t, 2> streams{};
  std::vector<cudaEvent_t> events;
};

TEST_F(CudaEmulation, barriers_and_shuffles_give_every_block_size_its_sum) {
  for (const int threads : {1, 2, 31, 32, 33, 100, 1023, 1024}) {
    unsigned* const sums = device<unsigned>(3);
    launch_block_sums(streams[0], 3, threads, sums);
    const auto expected = static_cast<unsigned>(threads * (threads - 1) / 2);
    EXPECT_EQ(download(sums, 3), std::vector<unsigned>(3, expected)) << threads << " threads";
  }
}

TEST_F(CudaEmulation, dynamic_shared_memory_holds_what_the_block_wrote) {
  unsigned *const in = device<unsigned>(70), *const out = device<unsigned>(70);
  unsigned* const host = pinned<unsigned>(70);
  std::iota(host, host + 70, 0u);
  cudaMemcpyAsync(in, host, 70 * sizeof(unsigned), cudaMemcpyHostToDevice, streams[0]);
  launch_rotate(streams[0], 70, in, out);
  const auto values = download(out, 70);
  for (unsigned i = 0; i < 70; ++i) EXPECT_EQ(values[i], (i + 1) % 70);
}

TEST_F(CudaEmulation, a_part_of_a_warp_can_shuffle_alone) {
  for (const int lanes : {1, 5, 31, 32}) {
    unsigned* const out = device<unsigned>(64);
    cudaMemsetAsync(out, 0, 64 * sizeof(unsigned), streams[0]);
    launch_part_of_warp(streams[0], lanes, out);
    const auto values = download(out, 64);
    for (int i = 0; i < 64; ++i)
      EXPECT_EQ(values[static_cast<std::size_t>(i)], i % 32 < lanes ? (lanes - 1) * 10 : 0) << i;
  }
}

TEST_F(CudaEmulation, an_event_orders_two_streams) {
  float* const memory = device<float>(1000);
  for (int i = 0; i < 20; ++i) {
    launch_fill(streams[0], 1000, 1.0f, memory);
    cudaStreamWaitEvent(streams[1], recorded(0), 0);
    launch_add(streams[1], 1000, memory, memory);
    cudaStreamWaitEvent(streams[0], recorded(1), 0);
  }
  EXPECT_EQ(download(memory, 1000), std::vector<float>(1000, 2.0f));
}

using CudaEmulationDeathTest = CudaEmulation;

// What is found by watching each load and store.
class CudaEmulationWatchDeathTest : public CudaEmulation {
 protected:
  void SetUp() override {
#if defined(HEADRACE_UNWATCHED)
    GTEST_SKIP() << "a sanitizer's calls stand where the emulation's would watch loads and stores";
#endif
    CudaEmulation::SetUp();
  }
};

void expect_violation(const std::function<void()>& body, const char* message) {
  EXPECT_EXIT(
      {
        body();
        std::_Exit(0);
      },
      ::testing::ExitedWithCode(violation_status), message);
}

TEST_F(CudaEmulationWatchDeathTest, writes_of_two_streams_that_no_event_orders_are_found) {
  expect_violation(
      [&] {
        float* const memory = device<float>(100);
        launch_fill(streams[0], 100, 1.0f, memory);
        launch_fill(streams[1], 100, 2.0f, memory);
        for (const cudaStream_t stream : streams) cudaStreamSynchronize(stream);
      },
      "\"fill\" of stream .* writes .* has written: no event");
}

TEST_F(CudaEmulationWatchDeathTest, they_are_found_when_the_first_had_long_ended_too) {
  expect_violation(
      [&] {
        float* const memory = device<float>(100);
        launch_fill(streams[0], 100, 1.0f, memory);
        for (const cudaEvent_t event = recorded(0); cudaEventQuery(event) != cudaSuccess;) {
        }
        launch_add(streams[1], 100, memory, device<float>(100));
        cudaStreamSynchronize(streams[1]);
      },
      "\"add\" of stream .* reads .* has written: no event");
}

TEST_F(CudaEmulationWatchDeathTest, a_write_after_an_unordered_read_is_found) {
  expect_violation(
      [&] {
        float *const memory = device<float>(100), *const other = device<float>(100);
        launch_fill(streams[0], 100, 0.0f, memory);
        launch_fill(streams[0], 100, 0.0f, other);
        cudaStreamWaitEvent(streams[1], recorded(0), 0);
        launch_add(streams[1], 100, memory, other);
        launch_fill(streams[0], 100, 0.0f, memory);
        for (const cudaStream_t stream : streams) cudaStreamSynchronize(stream);
      },
      "no event");
}

TEST_F(CudaEmulation, neighbours_in_one_allocation_do_not_conflict) {
  float* const memory = device<float>(64);
  launch_fill(streams[0], 16, 1.0f, memory);
  launch_fill(streams[1], 16, 2.0f, memory + 16);
  for (const cudaStream_t stream : streams) cudaStreamSynchronize(stream);
  EXPECT_EQ(download(memory, 32)[31], 2.0f);
}

TEST_F(CudaEmulationWatchDeathTest, the_host_writing_what_a_copy_still_reads_is_found) {
  expect_violation(
      [&] {
        float *const host = pinned<float>(100), *const memory = device<float>(100);
        host_fill(host, 100, 1.0f);
        cudaMemcpyAsync(memory, host, 400, cudaMemcpyHostToDevice, streams[0]);
        for (const cudaEvent_t event = recorded(0); cudaEventQuery(event) != cudaSuccess;) {
        }
        host_fill(host, 100, 2.0f);
      },
      "of the host writes registered host memory .* has read");
}

TEST_F(CudaEmulation, the_host_may_write_it_after_waiting) {
  float *const host = pinned<float>(100), *const memory = device<float>(100);
  for (int i = 0; i < 10; ++i) {
    host_fill(host, 100, static_cast<float>(i));
    cudaMemcpyAsync(memory, host, 400, cudaMemcpyHostToDevice, streams[0]);
    cudaEventSynchronize(recorded(0));
  }
  EXPECT_EQ(download(memory, 100)[99], 9.0f);
}

TEST_F(CudaEmulationWatchDeathTest, the_host_reading_what_a_copy_still_writes_is_found) {
  expect_violation(
      [&] {
        float *const host = pinned<float>(100), *const memory = device<float>(100);
        cudaMemsetAsync(memory, 0, 400, streams[0]);
        cudaMemcpyAsync(host, memory, 400, cudaMemcpyDeviceToHost, streams[0]);
        for (const cudaEvent_t event = recorded(0); cudaEventQuery(event) != cudaSuccess;) {
        }
        host_sum(host, 100);
      },
      "of the host reads registered host memory .* has written");
}

TEST_F(CudaEmulationWatchDeathTest, the_host_s_memset_and_memcpy_are_seen) {
  expect_violation(
      [&] {
        float *const host = pinned<float>(100), *const memory = device<float>(100);
        cudaMemcpyAsync(memory, host, 400, cudaMemcpyHostToDevice, streams[0]);
        for (const cudaEvent_t event = recorded(0); cudaEventQuery(event) != cudaSuccess;) {
        }
        host_zero(host, 100);
      },
      "of the host writes registered host memory .* has read");
  expect_violation(
      [&] {
        float *const host = pinned<float>(100), *const memory = device<float>(100);
        std::vector<float> values(100);
        cudaMemsetAsync(memory, 0, 400, streams[0]);
        cudaMemcpyAsync(host, memory, 400, cudaMemcpyDeviceToHost, streams[0]);
        for (const cudaEvent_t event = recorded(0); cudaEventQuery(event) != cudaSuccess;) {
        }
        host_copy(host, 100, values.data());
      },
      "of the host reads registered host memory .* has written");
}

TEST_F(CudaEmulationWatchDeathTest, a_store_just_beyond_an_allocation_is_found) {
  for (const long numel : {1l, 63l, 64l, 1000l, 1024l})
    for (const long offset : {numel, numel + 1, -1l})
      expect_violation(
          [&] {
            launch_touch(streams[0], offset, device<float>(static_cast<std::size_t>(numel)));
            cudaStreamSynchronize(streams[0]);
          },
          "\"touch\" (writes|touches)");
}

TEST_F(CudaEmulationDeathTest, host_code_that_touches_device_memory_is_found) {
  expect_violation([&] { *device<float>(1) = 1.0f; }, "touches device allocation");
  expect_violation([&] { host_fill(device<float>(4), 4, 1.0f); }, "touches device allocation");
}

TEST_F(CudaEmulationDeathTest, a_kernel_argument_that_points_to_pageable_memory_is_found) {
  expect_violation(
      [&] {
        std::vector<float> host(10);
        launch_fill(streams[0], 10, 1.0f, host.data());
        cudaStreamSynchronize(streams[0]);
      },
      "kernel fill: argument 3 points to memory that is neither");
}

TEST_F(CudaEmulationDeathTest, an_asynchronous_copy_of_pageable_memory_is_found) {
  expect_violation(
      [&] {
        std::vector<float> host(10);
        cudaMemcpyAsync(device<float>(10), host.data(), 40, cudaMemcpyHostToDevice, streams[0]);
      },
      "pageable");
}

TEST_F(CudaEmulationDeathTest, a_copy_beyond_an_allocation_is_found) {
  expect_violation(
      [&] {
        cudaMemsetAsync(device<float>(10), 0, 41, streams[0]);
        cudaStreamSynchronize(streams[0]);
      },
      "\"memset\" writes 41 bytes");
}

TEST_F(CudaEmulationDeathTest, a_use_after_free_is_found) {
  expect_violation(
      [&] {
        float* const memory = device<float>(10);
        cudaFree(memory);
        launch_touch(streams[0], 0, memory);
        cudaStreamSynchronize(streams[0]);
      },
      "use after free of device allocation");
}

TEST_F(CudaEmulationWatchDeathTest, freeing_what_a_stream_may_still_use_is_found) {
  expect_violation(
      [&] {
        float* const memory = device<float>(10);
        launch_fill(streams[0], 10, 1.0f, memory);
        for (const cudaEvent_t event = recorded(0); cudaEventQuery(event) != cudaSuccess;) {
        }
        cudaFree(memory);
      },
      "of the host frees device allocation .* has written: no event");
  expect_violation(
      [&] {
        float *const host = pinned<float>(10), *const memory = device<float>(10);
        cudaMemcpyAsync(memory, host, 40, cudaMemcpyHostToDevice, streams[0]);
        for (const cudaEvent_t event = recorded(0); cudaEventQuery(event) != cudaSuccess;) {
        }
        cudaFreeHost(host);
      },
      "of the host frees registered host memory .* has read: no event");
}

TEST_F(CudaEmulation, memory_may_be_freed_after_waiting) {
  for (int i = 0; i < 10; ++i) {
    float* const memory = device<float>(100000);
    launch_fill(streams[0], 100000, 1.0f, memory);
    cudaStreamSynchronize(streams[0]);
    EXPECT_EQ(cudaFree(memory), cudaSuccess);
  }
}

TEST_F(CudaEmulationDeathTest, a_barrier_that_half_a_block_reaches_is_found) {
  expect_violation(
      [&] {
        launch_barrier_of_half_a_block(streams[0]);
        cudaStreamSynchronize(streams[0]);
      },
      "its threads wait for each other");
}

TEST_F(CudaEmulationDeathTest, launches_that_no_device_takes_are_found) {
  expect_violation([&] { launch_idle(streams[0], {1, 65536, 1}, {1, 1, 1}); }, "no device runs a grid");
  expect_violation([&] { launch_idle(streams[0], {1, 1, 65536}, {1, 1, 1}); }, "no device runs a grid");
  expect_violation([&] { launch_idle(streams[0], {0x80000000u, 1, 1}, {1, 1, 1}); }, "no device runs a grid");
  expect_violation([&] { launch_idle(streams[0], {1, 1, 1}, {1, 1, 65}); }, "no device runs a block");
  expect_violation([&] { launch_idle(streams[0], {1, 1, 1}, {1025, 1, 1}); }, "no device runs a block");
  expect_violation([&] { launch_idle(streams[0], {1, 1, 1}, {32, 33, 1}); }, "no device runs a block");
}

TEST_F(CudaEmulation, a_launch_at_the_limits_of_a_block_runs) {
  launch_idle(streams[0], {1, 1, 1}, {16, 1, 64});
  launch_idle(streams[0], {1, 65535, 1}, {1, 1, 1});
  EXPECT_EQ(cudaStreamSynchronize(streams[0]), cudaSuccess);
}

TEST_F(CudaEmulation, lanes_run_in_more_than_one_order) {
  bool ascending = false, descending = false;
  for (int i = 0; i < 64 && !(ascending && descending); ++i) {
    int* const last = device<int>(1);
    launch_last_lane(streams[0], last);
    const int lane = download(last, 1)[0];
    ascending |= lane == 31;
    descending |= lane == 0;
  }
  EXPECT_TRUE(ascending);
  EXPECT_TRUE(descending);
}

TEST_F(CudaEmulation, a_lane_that_a_partial_warp_lacks_delivers_all_ones) {
  unsigned* const out = device<unsigned>(1);
  launch_shuffle_from_lacking_lane(streams[0], out);
  EXPECT_EQ(download(out, 1)[0], ~0u);
}

TEST_F(CudaEmulationDeathTest, a_shuffle_whose_mask_names_lanes_that_left_is_found) {
  expect_violation(
      [&] {
        launch_shuffle_with_lanes_that_left(streams[0]);
        cudaStreamSynchronize(streams[0]);
      },
      "threads 16 to 31 left");
}

TEST_F(CudaEmulationDeathTest, a_store_beyond_shared_memory_does_not_pass) {
  EXPECT_DEATH(
      {
        launch_shared_overrun(streams[0]);
        cudaStreamSynchronize(streams[0]);
      },
      "");
}

TEST_F(CudaEmulationDeathTest, a_cuda_call_from_a_host_function_is_found) {
  expect_violation(
      [&] {
        cudaLaunchHostFunc(
            streams[0], [](void*) { cudaGetLastError(), cudaFree(nullptr); }, nullptr);
        cudaStreamSynchronize(streams[0]);
      },
      "a host function calls");
}

// Seconds that 50 host functions that do nothing take on one stream.
double seconds_of_empty_works(cudaStream_t stream) {
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < 50; ++i)
    cudaLaunchHostFunc(
        stream, [](void*) {}, nullptr);
  cudaStreamSynchronize(stream);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

TEST_F(CudaEmulation, a_seed_of_delays_holds_stream_work_back) {
  constexpr double enough = 0.005;  // 50 delays of 0 to 0.5 ms are 12.5 ms on average
  double fastest = seconds_of_empty_works(streams[0]);
  for (int i = 0; i < 20 && fastest >= enough; ++i)  // the machine may be busy
    fastest = std::min(fastest, seconds_of_empty_works(streams[0]));
  EXPECT_LT(fastest, enough);
  cuda_emulation::options().delay_seed = 1;
  EXPECT_GE(seconds_of_empty_works(streams[0]), enough);
  cuda_emulation::options().delay_seed = 0;
}

TEST_F(CudaEmulation, the_order_of_host_functions_of_two_streams_changes_with_the_seed) {
  std::set<std::string> orders;
  for (std::uint64_t seed = 1; seed <= 20 && orders.size() < 2; ++seed) {
    cuda_emulation::options().delay_seed = seed;
    struct Call {
      char name;
      std::string* order;
    };
    std::string order;  // host functions run one at a time
    std::array<Call, 2> calls{{{'a', &order}, {'b', &order}}};
    std::array<cudaStream_t, 2> own{};  // a stream draws from the seed that it starts with
    for (cudaStream_t& stream : own) cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    for (std::size_t s = 0; s < own.size(); ++s)
      cudaLaunchHostFunc(
          own[s],
          [](void* call) { static_cast<Call*>(call)->order->push_back(static_cast<Call*>(call)->name); },
          &calls[s]);
    for (const cudaStream_t stream : own) cudaStreamDestroy(stream);
    orders.insert(order);
  }
  cuda_emulation::options().delay_seed = 0;
  EXPECT_EQ(orders.size(), 2u);
}

TEST_F(CudaEmulation, memory_beyond_the_device_s_is_refused_and_comes_back_when_freed) {
  std::size_t left = 0, total = 0;
  ASSERT_EQ(cudaMemGetInfo(&left, &total), cudaSuccess);
  void *first = nullptr, *second = nullptr;
  ASSERT_EQ(cudaMalloc(&first, left - 4096), cudaSuccess);
  EXPECT_EQ(cudaMalloc(&second, 8192), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  EXPECT_EQ(cudaFree(first), cudaSuccess);
  EXPECT_EQ(cudaMalloc(&second, 8192), cudaSuccess);
  cudaFree(second);
}

TEST_F(CudaEmulation, the_call_that_is_to_fail_fails_alone) {
  cuda_emulation::options().faults["cudaHostRegister"] = 2;
  std::vector<char> host(8192);
  EXPECT_EQ(cudaHostRegister(host.data(), 100, 0), cudaSuccess);
  EXPECT_EQ(cudaHostRegister(host.data() + 4096, 100, 0), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaHostRegister(host.data() + 4096, 100, 0), cudaSuccess);
  cudaHostUnregister(host.data());
  cudaHostUnregister(host.data() + 4096);
}

TEST_F(CudaEmulationDeathTest, a_kernel_that_faults_fails_every_later_call) {
  EXPECT_EXIT(
      {
        cuda_emulation::options().faults["kernel"] = 1;
        launch_fill(streams[0], 1, 1.0f, device<float>(1));
        const bool all = cudaStreamSynchronize(streams[0]) == cudaErrorIllegalAddress &&
                         cudaFree(nullptr) == cudaErrorIllegalAddress;
        std::_Exit(all ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace headrace::testing

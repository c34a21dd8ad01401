// A kernel launch on an emulated stream. Arguments are checked and translated as the stream reaches the
// launch: a pointer must be null, or point into device memory or registered host memory.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>
#include <tuple>
#include <type_traits>

namespace cuda_emulation {

// The address at which kernels reach `address`; a violation when it is no device or registered host memory.
void* kernel_address(const void* address, const char* kernel, int argument);

// Runs `thread` for every thread of the grid, on the stream.
void enqueue_grid(const char* name, dim3 grid, dim3 block, std::size_t shared_bytes, cudaStream_t stream,
                  std::function<std::function<void()>()> bind);

namespace detail {

template <class T>
concept HoldsPointers = requires(T value) {
  value.pointers([](auto&) {});
};

template <class T>
void translate(T& argument, const char* kernel, int index) {
  const auto at = [&](auto& pointer) {
    using Pointer = std::remove_reference_t<decltype(pointer)>;
    if (pointer != nullptr)
      pointer = static_cast<Pointer>(kernel_address(static_cast<const void*>(pointer), kernel, index));
  };
  if constexpr (std::is_pointer_v<T>) {
    at(argument);
  } else if constexpr (HoldsPointers<T>) {
    argument.pointers(at);
  }
}

}  // namespace detail

template <class... Parameters>
void launch(const char* name, dim3 grid, dim3 block, std::size_t shared_bytes, cudaStream_t stream,
            void (*kernel)(Parameters...), std::decay_t<Parameters>... arguments) {
  enqueue_grid(name, grid, block, shared_bytes, stream,
               [name, kernel, held = std::tuple<std::decay_t<Parameters>...>(arguments...)]() mutable {
                 int index = 0;
                 std::apply([&](auto&... each) { (detail::translate(each, name, ++index), ...); }, held);
                 return [kernel, held] { std::apply(kernel, held); };
               });
}

}  // namespace cuda_emulation

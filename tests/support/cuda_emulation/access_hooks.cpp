// The calls that the compiler puts before each load and store of instrumented code (-fsanitize=thread): in
// the place of the thread sanitizer stands the emulation.
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "support/cuda_emulation/accesses.h"

using cuda_emulation::note_access;

#define HEADRACE_HOOK_ACCESS(size)              \
  void __tsan_read##size(void* at) {            \
    note_access(at, size, false);               \
  }                                             \
  void __tsan_write##size(void* at) {           \
    note_access(at, size, true);                \
  }                                             \
  void __tsan_unaligned_read##size(void* at) {  \
    note_access(at, size, false);               \
  }                                             \
  void __tsan_unaligned_write##size(void* at) { \
    note_access(at, size, true);                \
  }                                             \
  void __tsan_volatile_read##size(void* at) {   \
    note_access(at, size, false);               \
  }                                             \
  void __tsan_volatile_write##size(void* at) {  \
    note_access(at, size, true);                \
  }

// Atomic operations order nothing here: what the emulation knows of order are streams, events and waits.
#define HEADRACE_HOOK_ATOMIC(bits)                                                                          \
  std::uint##bits##_t __tsan_atomic##bits##_load(const volatile std::uint##bits##_t* at, int) {             \
    return __atomic_load_n(at, __ATOMIC_SEQ_CST);                                                           \
  }                                                                                                         \
  void __tsan_atomic##bits##_store(volatile std::uint##bits##_t* at, std::uint##bits##_t value, int) {      \
    __atomic_store_n(at, value, __ATOMIC_SEQ_CST);                                                          \
  }                                                                                                         \
  std::uint##bits##_t __tsan_atomic##bits##_exchange(volatile std::uint##bits##_t* at,                      \
                                                     std::uint##bits##_t value, int) {                      \
    return __atomic_exchange_n(at, value, __ATOMIC_SEQ_CST);                                                \
  }                                                                                                         \
  std::uint##bits##_t __tsan_atomic##bits##_fetch_add(volatile std::uint##bits##_t* at,                     \
                                                      std::uint##bits##_t value, int) {                     \
    return __atomic_fetch_add(at, value, __ATOMIC_SEQ_CST);                                                 \
  }                                                                                                         \
  std::uint##bits##_t __tsan_atomic##bits##_fetch_sub(volatile std::uint##bits##_t* at,                     \
                                                      std::uint##bits##_t value, int) {                     \
    return __atomic_fetch_sub(at, value, __ATOMIC_SEQ_CST);                                                 \
  }                                                                                                         \
  std::uint##bits##_t __tsan_atomic##bits##_fetch_or(volatile std::uint##bits##_t* at,                      \
                                                     std::uint##bits##_t value, int) {                      \
    return __atomic_fetch_or(at, value, __ATOMIC_SEQ_CST);                                                  \
  }                                                                                                         \
  std::uint##bits##_t __tsan_atomic##bits##_fetch_and(volatile std::uint##bits##_t* at,                     \
                                                      std::uint##bits##_t value, int) {                     \
    return __atomic_fetch_and(at, value, __ATOMIC_SEQ_CST);                                                 \
  }                                                                                                         \
  int __tsan_atomic##bits##_compare_exchange_strong(volatile std::uint##bits##_t* at,                       \
                                                    std::uint##bits##_t* expected,                          \
                                                    std::uint##bits##_t value, int, int) {                  \
    return __atomic_compare_exchange_n(at, expected, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);     \
  }                                                                                                         \
  int __tsan_atomic##bits##_compare_exchange_weak(volatile std::uint##bits##_t* at,                         \
                                                  std::uint##bits##_t* expected, std::uint##bits##_t value, \
                                                  int, int) {                                               \
    return __atomic_compare_exchange_n(at, expected, value, true, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);      \
  }

extern "C" {
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
HEADRACE_HOOK_ACCESS(1)
HEADRACE_HOOK_ACCESS(2)
HEADRACE_HOOK_ACCESS(4)
HEADRACE_HOOK_ACCESS(8)
HEADRACE_HOOK_ACCESS(16)
void __tsan_read_range(void* at, unsigned long size) {
  note_access(at, size, false);
}
void __tsan_write_range(void* at, unsigned long size) {
  note_access(at, size, true);
}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}
HEADRACE_HOOK_ATOMIC(8)
HEADRACE_HOOK_ATOMIC(16)
HEADRACE_HOOK_ATOMIC(32)
HEADRACE_HOOK_ATOMIC(64)
void __tsan_atomic_thread_fence(int) {
  std::atomic_thread_fence(std::memory_order_seq_cst);
}
void __tsan_atomic_signal_fence(int) {}

#if !defined(HEADRACE_UNWATCHED)
// Calls, and what the compiler makes calls of, are loads and stores too: the linker sends them here
// (--wrap, CMakeLists.txt).
void* __real_memcpy(void* to, const void* from, std::size_t bytes);
void* __real_memmove(void* to, const void* from, std::size_t bytes);
void* __real_memset(void* to, int value, std::size_t bytes);
void* __wrap_memcpy(void* to, const void* from, std::size_t bytes) {
  note_access(from, bytes, false);
  note_access(to, bytes, true);
  return __real_memcpy(to, from, bytes);
}
void* __wrap_memmove(void* to, const void* from, std::size_t bytes) {
  note_access(from, bytes, false);
  note_access(to, bytes, true);
  return __real_memmove(to, from, bytes);
}
void* __wrap_memset(void* to, int value, std::size_t bytes) {
  note_access(to, bytes, true);
  return __real_memset(to, value, bytes);
}
#endif
}

#include "support/cuda_emulation/fiber.h"

#include <sys/mman.h>
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

#include <cstdint>

#include "support/cuda_emulation/runtime.h"

// Saves the registers that a call preserves on the stack, keeps the stack pointer in *save, and goes on where
// `to` was saved.
extern "C" void cuda_emulation_switch(void** save, void* to);
asm(R"(
.text
.globl cuda_emulation_switch
.type cuda_emulation_switch, @function
cuda_emulation_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size cuda_emulation_switch, .-cuda_emulation_switch
.globl cuda_emulation_start
.type cuda_emulation_start, @function
cuda_emulation_start:
  movq %r12, %rdi
  callq *%rbx
  ud2
.size cuda_emulation_start, .-cuda_emulation_start
)");
extern "C" void cuda_emulation_start();

namespace cuda_emulation {
namespace {

constexpr std::size_t guard_bytes = 4096;
constexpr std::size_t stack_bytes = 128 << 10;

#if defined(__SANITIZE_ADDRESS__)
void leave_stack(void** frames, const void* bottom, std::size_t bytes) {
  __sanitizer_start_switch_fiber(frames, bottom, bytes);
}
void enter_stack(void* frames, const void** left_bottom, std::size_t* left_bytes) {
  __sanitizer_finish_switch_fiber(frames, left_bottom, left_bytes);
}
#else
void leave_stack(void**, const void*, std::size_t) {}
void enter_stack(void*, const void**, std::size_t*) {}
#endif

}  // namespace

Fiber::Fiber(Entry entry, void* argument)
    : mapping_(::mmap(nullptr, guard_bytes + stack_bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {
  if (mapping_ == MAP_FAILED || ::mprotect(mapping_, guard_bytes, PROT_NONE) != 0)
    violation("no memory for a fiber's stack");
  auto** top = reinterpret_cast<void**>(static_cast<char*>(mapping_) + guard_bytes + stack_bytes);
  // What cuda_emulation_switch pops, then returns to; a call expects the stack 16-byte aligned before it.
  *--top = nullptr;
  *--top = nullptr;
  *--top = reinterpret_cast<void*>(cuda_emulation_start);
  *--top = nullptr;                              // rbp
  *--top = reinterpret_cast<void*>(entry);       // rbx
  *--top = argument;                             // r12
  for (int i = 0; i < 3; ++i) *--top = nullptr;  // r13, r14, r15
  stack_ = top;
}

Fiber::~Fiber() {
  ::munmap(mapping_, guard_bytes + stack_bytes);
}

void Fiber::resume() {
  leave_stack(&caller_frames_, static_cast<char*>(mapping_) + guard_bytes, stack_bytes);
  cuda_emulation_switch(&caller_, stack_);
  enter_stack(caller_frames_, nullptr, nullptr);
}

void Fiber::suspend() {
  leave_stack(&own_frames_, caller_bottom_, caller_bytes_);
  cuda_emulation_switch(&stack_, caller_);
  entered();
}

void Fiber::entered() {
  enter_stack(own_frames_, &caller_bottom_, &caller_bytes_);
}

}  // namespace cuda_emulation

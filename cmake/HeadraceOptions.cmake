option(HEADRACE_TESTS "Build the tests" ON)
option(HEADRACE_BENCHMARKS "Build the benchmarks of perf/" ON)
set(HEADRACE_SANITIZE "" CACHE STRING "Sanitizers, for -fsanitize= (address,undefined or thread)")

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

find_program(HEADRACE_CCACHE ccache)
if(HEADRACE_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER "${HEADRACE_CCACHE}")
endif()

# Flags of every target. No -march: wide instructions live in the files that are dispatched at run time.
# -ffp-contract=off: every fma is written out, so that all instruction sets give the same bits.
add_library(headrace_flags INTERFACE)
set(headrace_warnings -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Werror -ffp-contract=off -fno-math-errno)
target_compile_options(headrace_flags INTERFACE "$<$<COMPILE_LANGUAGE:C,CXX>:${headrace_warnings}>")
if(HEADRACE_SANITIZE)
  # -O1 -g1: a finding needs its lines and no variables; -O2 -g takes 2.5 times as long to compile.
  target_compile_options(headrace_flags INTERFACE -fsanitize=${HEADRACE_SANITIZE} -fno-omit-frame-pointer
                                                  -fno-sanitize-recover=all -O1 -g1)
  target_link_options(headrace_flags INTERFACE -fsanitize=${HEADRACE_SANITIZE})
  if(HEADRACE_SANITIZE MATCHES "thread")
    target_compile_options(headrace_flags INTERFACE -Wno-tsan)
  endif()
endif()

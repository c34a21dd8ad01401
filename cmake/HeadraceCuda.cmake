# The GPU backend: gpu/ compiled by nvcc for real devices (HEADRACE_CUDA, preset "cuda"), or a stub whose errors say how to
# get it. Wherever the toolkit's headers are found, the tests also compile gpu/ with the C++ compiler against an emulation of
# the CUDA runtime (tests/support/cuda_emulation).
option(HEADRACE_CUDA "Build the CUDA backend (needs the CUDA Toolkit with cuBLAS, and NCCL)" OFF)

file(GLOB headrace_cuda_sources CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/gpu/*.cpp" "${CMAKE_SOURCE_DIR}/gpu/*.cu")

set(headrace_cuda_hints "$ENV{CUDA_HOME}" "$ENV{CUDA_PATH}" /usr/local/cuda)
find_path(HEADRACE_CUDA_INCLUDE cuda_runtime.h HINTS ${headrace_cuda_hints} PATH_SUFFIXES include)
find_path(HEADRACE_CUBLASLT_INCLUDE cublasLt.h HINTS ${HEADRACE_CUDA_INCLUDE} ${headrace_cuda_hints} PATH_SUFFIXES include)
find_path(HEADRACE_NCCL_INCLUDE nccl.h HINTS "$ENV{NCCL_HOME}" ${headrace_cuda_hints} PATH_SUFFIXES include)
mark_as_advanced(HEADRACE_CUDA_INCLUDE HEADRACE_CUBLASLT_INCLUDE HEADRACE_NCCL_INCLUDE)
set(headrace_cuda_headers ${HEADRACE_CUDA_INCLUDE} ${HEADRACE_CUBLASLT_INCLUDE} ${HEADRACE_NCCL_INCLUDE})
list(REMOVE_DUPLICATES headrace_cuda_headers)

if(HEADRACE_CUDA)
  # CMake 3.25 looks for nvcc on PATH alone.
  find_program(HEADRACE_NVCC nvcc HINTS ${headrace_cuda_hints} PATH_SUFFIXES bin)
  if(NOT HEADRACE_NVCC OR NOT HEADRACE_NCCL_INCLUDE)
    message(FATAL_ERROR "HEADRACE_CUDA needs nvcc, cuBLAS and NCCL. Set CUDA_HOME (and NCCL_HOME) to where they are, or "
                        "build without it: cmake --preset release.")
  endif()
  set(CMAKE_CUDA_COMPILER "${HEADRACE_NVCC}")
  # Newer devices compile what is kept for 10.0 as they start.
  set(CMAKE_CUDA_ARCHITECTURES 80-real 90-real 100 CACHE STRING "Devices to compile for")
  set(CMAKE_CUDA_RUNTIME_LIBRARY Shared)
  enable_language(CUDA)
  find_package(CUDAToolkit REQUIRED)
  find_library(HEADRACE_NCCL_LIBRARY nccl REQUIRED HINTS "$ENV{NCCL_HOME}" ${headrace_cuda_hints} PATH_SUFFIXES lib lib64)
  if(HEADRACE_CCACHE)
    set(CMAKE_CUDA_COMPILER_LAUNCHER "${HEADRACE_CCACHE}")
  endif()
  # CMake 3.25 does not know that this nvcc knows C++20.
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
  # No contraction and IEEE division and roots: the bits of the CPU's kernels.
  string(APPEND CMAKE_CUDA_FLAGS " --fmad=false --ftz=false --prec-div=true --prec-sqrt=true "
                                 "--expt-relaxed-constexpr --extended-lambda -Xcompiler=-ffp-contract=off")
  set(headrace_gpu_sources ${headrace_cuda_sources})
  set(headrace_gpu_libraries CUDA::cudart CUDA::cublasLt ${HEADRACE_NCCL_LIBRARY})
else()
  set(headrace_gpu_sources "${CMAKE_SOURCE_DIR}/gpu/stub/stub.cpp")
  set(headrace_gpu_libraries "")
endif()

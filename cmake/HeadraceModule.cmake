# headrace_module(NAME DIRECTORY dir [DEPENDS modules...] [PUBLIC libs...] [PRIVATE libs...])
# A static library headrace_NAME of every *.cpp directly in `dir`, or of headrace_NAME_sources where that is set. Its own headers are included as "NAME-relative" paths
# from the source root (for example "src/memory/arena.h"); what it offers to others is under include/headrace.
function(headrace_module name)
  cmake_parse_arguments(arg "" "DIRECTORY" "DEPENDS;PUBLIC;PRIVATE" ${ARGN})
  if(DEFINED headrace_${name}_sources)
    set(sources ${headrace_${name}_sources})
  else()
    file(GLOB sources CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/${arg_DIRECTORY}/*.cpp")
  endif()
  if(NOT sources)
    set(kind INTERFACE)
    add_library(headrace_${name} INTERFACE)
  else()
    set(kind PUBLIC)
    add_library(headrace_${name} STATIC ${sources})
    target_link_libraries(headrace_${name} PRIVATE headrace_flags ${arg_PRIVATE})
  endif()
  target_include_directories(headrace_${name} ${kind} "${CMAKE_SOURCE_DIR}/include" "${CMAKE_SOURCE_DIR}")
  list(TRANSFORM arg_DEPENDS PREPEND headrace_)
  target_link_libraries(headrace_${name} ${kind} ${arg_DEPENDS} ${arg_PUBLIC} Threads::Threads)
endfunction()

# headrace_discover(PROGRAM TIMEOUT seconds LABELS labels...)
# Each test of a GoogleTest program is a ctest entry, named as --gtest_filter takes it. What the thread sanitizer runs, its
# preset builds.
add_custom_target(tsan_programs)
include(GoogleTest)
function(headrace_discover program)
  cmake_parse_arguments(arg "" "TIMEOUT" "LABELS" ${ARGN})
  # One label "fast,tsan", which -L finds by either word: discovery takes lists apart (of two labels it keeps the first).
  list(JOIN arg_LABELS "," label)
  set(serial OFF)
  if("alone" IN_LIST arg_LABELS)
    set(serial ON)
  endif()
  gtest_discover_tests(${program} TEST_PREFIX "${program}." NO_PRETTY_VALUES DISCOVERY_TIMEOUT 60
                       PROPERTIES LABELS "${label}" TIMEOUT ${arg_TIMEOUT} RUN_SERIAL ${serial})
  if("tsan" IN_LIST arg_LABELS)
    add_dependencies(tsan_programs ${program})
  endif()
endfunction()

# headrace_needs_devices(PROGRAM): one of the programs that run on real CUDA devices, which preset "cuda" builds.
add_custom_target(gpu_programs)
function(headrace_needs_devices program)
  add_dependencies(gpu_programs ${program})
endfunction()

# headrace_tests(NAME DIRECTORY dir LINK libs... [LABELS labels...])
# One GoogleTest program of every *_test.cpp in `dir`; each test is its own ctest entry.
function(headrace_tests name)
  cmake_parse_arguments(arg "" "DIRECTORY;TIMEOUT" "LINK;LABELS" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/${arg_DIRECTORY}/*_test.cpp")
  if(NOT sources)
    return()
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  add_executable(${name} ${sources})
  target_link_libraries(${name} PRIVATE headrace_flags ${arg_LINK} GTest::gtest GTest::gtest_main GTest::gmock)
  target_include_directories(${name} PRIVATE "${CMAKE_SOURCE_DIR}" "${CMAKE_SOURCE_DIR}/tests")
  headrace_discover(${name} TIMEOUT ${arg_TIMEOUT} LABELS ${arg_LABELS})
endfunction()

# headrace_starts_mpi(tests...)
# MPI keeps memory until its process ends and unloads the plug-ins that own it, so that a leak there has no name to be known
# by. The same code is checked for leaks in every test that runs without MPI.
function(headrace_starts_mpi)
  if(HEADRACE_SANITIZE MATCHES "address")
    set_tests_properties(${ARGN} PROPERTIES ENVIRONMENT_MODIFICATION "ASAN_OPTIONS=string_append::detect_leaks=0")
  endif()
endfunction()

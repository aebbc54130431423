# SPDX-License-Identifier: Apache-2.0
# The language CUDA where a compiler for it is found: GNMR_HAVE_CUDA, and gnmr_use_cuda(TARGET) for a target's flags.
#
# Kernels are compiled without a GPU. Included from the root, because a language is known below the folder that
# enables it only. Sanitized and fuzz builds have the stub.
include_guard()

set(GNMR_CUDA AUTO CACHE STRING "Build the CUDA kernels: ON, OFF, or AUTO (where nvcc is found)")
set(GNMR_HAVE_CUDA OFF)

if(NOT GNMR_CUDA STREQUAL "OFF" AND NOT GNMR_SANITIZE)
  # Machine code for Hopper and PTX for what comes after it. Named before the language is enabled, and in the
  # environment for check_language: the compiler is tried with them.
  if(NOT CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 90 CACHE STRING "CUDA architectures")
  endif()
  set(ENV{CUDAARCHS} "${CMAKE_CUDA_ARCHITECTURES}")
  # The toolkit's usual place need not be on the PATH.
  find_program(GNMR_NVCC nvcc PATHS /usr/local/cuda/bin)
  if(GNMR_NVCC AND NOT DEFINED ENV{CUDACXX})
    set(ENV{CUDACXX} ${GNMR_NVCC})
  endif()
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    enable_language(CUDA)
    set(GNMR_HAVE_CUDA ON)
    message(STATUS "CUDA ${CMAKE_CUDA_COMPILER_VERSION}: the kernels are built for ${CMAKE_CUDA_ARCHITECTURES}")
  elseif(GNMR_CUDA STREQUAL "ON")
    message(FATAL_ERROR "GNMR_CUDA is ON, but no CUDA compiler works here: put nvcc on the PATH "
      "(or -DCMAKE_CUDA_COMPILER=...)")
  else()
    message(STATUS "no CUDA compiler: the kernels are left out; everything else is built")
  endif()
endif()

function(gnmr_use_cuda target)
  # Newer versions of CMake take these into unity builds too, where their names clash.
  get_target_property(sources ${target} SOURCES)
  list(FILTER sources INCLUDE REGEX "\\.cu$")
  set_source_files_properties(${sources} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  set_target_properties(${target} PROPERTIES CUDA_VISIBILITY_PRESET hidden)
  if(DEFINED CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
    set_target_properties(${target} PROPERTIES CUDA_STANDARD 20 CUDA_STANDARD_REQUIRED ON CUDA_EXTENSIONS OFF)
  else()
    # CMake 3.25 does not know that nvcc has it.
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:-std=c++20>)
  endif()
  target_compile_options(${target} PRIVATE
    $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra,-Wshadow>
    $<$<AND:$<COMPILE_LANGUAGE:CUDA>,$<BOOL:${GNMR_WERROR}>>:--Werror=all-warnings>)
endfunction()

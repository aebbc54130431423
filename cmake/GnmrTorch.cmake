# SPDX-License-Identifier: Apache-2.0
# LibTorch as it lies in an installed Python torch: the target gnmr_libtorch, and GNMR_HAVE_TORCH.
#
# find_package(Torch) would also ask for the CUDA toolkit that a CUDA build was made with; all that is needed here are
# its headers and libraries. The CPU wheel and the CUDA wheel have the same headers for what this project includes.
include_guard()

set(GNMR_TORCH AUTO CACHE STRING "Build the training engine: ON, OFF, or AUTO (where a Python with torch is found)")
set(GNMR_TORCH_PYTHON "" CACHE FILEPATH "The Python whose torch is used; empty: GNMR_TEST_PYTHON, .venv, python3")
set(GNMR_HAVE_TORCH OFF)

function(gnmr_ask_python python result)
  execute_process(COMMAND ${python} -c
    "import torch; print(torch.__path__[0], torch.__version__, int(torch._C._GLIBCXX_USE_CXX11_ABI), sep=';')"
    OUTPUT_VARIABLE answer ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE failed)
  if(failed)
    set(answer "")
  endif()
  set(${result} "${answer}" PARENT_SCOPE)
endfunction()

# Asking takes seconds: the answer is kept until another Python is named or torch has gone.
function(gnmr_find_torch)
  set(candidates ${GNMR_TORCH_PYTHON} ${GNMR_TEST_PYTHON} ${PROJECT_SOURCE_DIR}/.venv/bin/python python3)
  list(GET candidates 0 first)
  list(GET GNMR_TORCH_ANSWER 0 folder)
  if(GNMR_TORCH_ANSWER AND GNMR_TORCH_ASKED STREQUAL first AND EXISTS ${folder}/version.py)
    return()
  endif()
  foreach(python IN LISTS candidates)
    gnmr_ask_python(${python} answer)
    if(answer)
      set(GNMR_TORCH_ANSWER "${answer}" CACHE INTERNAL "folder, version and ABI of torch")
      set(GNMR_TORCH_ASKED ${first} CACHE INTERNAL "the first candidate when torch was looked for")
      return()
    endif()
  endforeach()
  unset(GNMR_TORCH_ANSWER CACHE)
endfunction()

if(NOT GNMR_TORCH STREQUAL "OFF" AND NOT GNMR_SANITIZE)
  gnmr_find_torch()
  if(GNMR_TORCH_ANSWER)
    list(GET GNMR_TORCH_ANSWER 0 torch_folder)
    list(GET GNMR_TORCH_ANSWER 1 torch_version)
    list(GET GNMR_TORCH_ANSWER 2 torch_abi)
    message(STATUS "torch ${torch_version}: the training engine is built")
    set(GNMR_HAVE_TORCH ON)
    add_library(gnmr_libtorch INTERFACE)
    target_include_directories(gnmr_libtorch SYSTEM INTERFACE
      ${torch_folder}/include ${torch_folder}/include/torch/csrc/api/include)
    target_compile_definitions(gnmr_libtorch INTERFACE _GLIBCXX_USE_CXX11_ABI=${torch_abi})
    set(torch_libraries libtorch.so libtorch_cpu.so libc10.so)
    list(TRANSFORM torch_libraries PREPEND ${torch_folder}/lib/)
    if(EXISTS ${torch_folder}/lib/libtorch_cuda.so)
      list(APPEND torch_libraries ${torch_folder}/lib/libtorch_cuda.so)
    endif()
    # The operators of a device register themselves when its library is loaded, whether or not a symbol is used.
    target_link_libraries(gnmr_libtorch INTERFACE -Wl,--no-as-needed ${torch_libraries} -Wl,--as-needed)
    target_link_options(gnmr_libtorch INTERFACE -Wl,-rpath,${torch_folder}/lib)
  elseif(GNMR_TORCH STREQUAL "ON")
    message(FATAL_ERROR "GNMR_TORCH is ON, but no Python with torch was found: pip install torch==2.13.0 "
      "(or -DGNMR_TORCH_PYTHON=...)")
  else()
    message(STATUS "no torch: the training engine is left out; everything else is built")
  endif()
endif()

# gnmr_add_torch_layer(NAME SOURCES ... PUBLIC ... PRIVATE ...): a layer that includes torch. Its headers cost ten
# seconds a file; they are compiled once, for all layers and their tests, which is why these share one set of flags.
function(gnmr_add_torch_layer name)
  gnmr_add_layer(${name} ${ARGN})
  target_link_libraries(gnmr_${name} PUBLIC gnmr_libtorch)
  gnmr_use_torch_headers(gnmr_${name})
endfunction()

function(gnmr_use_torch_headers target)
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE ON CXX_EXTENSIONS OFF
    CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON UNITY_BUILD_BATCH_SIZE 8)
  # -fPIC for programs too: a precompiled header is taken only where the flags are the same.
  # torch shares loops among threads in its headers: without -fopenmp they would run on one.
  target_compile_options(${target} PRIVATE -fPIC -O2 -ffp-contract=off -fopenmp)
  target_link_options(${target} PUBLIC -fopenmp)
  if(NOT target STREQUAL gnmr_torch_headers)
    target_precompile_headers(${target} REUSE_FROM gnmr_torch_headers)
  endif()
endfunction()

if(GNMR_HAVE_TORCH)
  file(WRITE ${CMAKE_BINARY_DIR}/torch_headers.cpp "// Holds the precompiled header that all torch layers share.\n")
  add_library(gnmr_torch_headers STATIC ${CMAKE_BINARY_DIR}/torch_headers.cpp)
  target_link_libraries(gnmr_torch_headers PRIVATE gnmr_compile_flags gnmr_libtorch)
  target_precompile_headers(gnmr_torch_headers PRIVATE
    <torch/csrc/autograd/custom_function.h> <torch/nn/module.h> <torch/nn/pimpl.h>)
  gnmr_use_torch_headers(gnmr_torch_headers)
endif()

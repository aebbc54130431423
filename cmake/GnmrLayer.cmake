# SPDX-License-Identifier: Apache-2.0
# One folder, one target, and includes that go downward only.
#
# A layer `x` lives in gnmr/x, is the target gnmr_x, and is included as "gnmr/x/...". Its include path is a folder of
# its own that holds nothing but a link to gnmr/x, so a header of a layer that a target does not link is not found.
include_guard()

# In a unity build a file sees the anonymous namespaces of others, and g++ takes its own for a header's.
set(shadow -Wshadow)
if(CMAKE_UNITY_BUILD AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  set(shadow "-Wshadow=local;-Wno-subobject-linkage")
elseif(CMAKE_UNITY_BUILD)
  set(shadow -Wno-shadow)
endif()
set(warnings -Wall -Wextra -Wpedantic ${shadow} -Wconversion -Wsign-conversion -Wnon-virtual-dtor -Woverloaded-virtual)
set(false_alarms -Wno-restrict -Wno-array-bounds -Wno-stringop-overflow)
add_library(gnmr_compile_flags INTERFACE)
target_compile_features(gnmr_compile_flags INTERFACE cxx_std_20)
target_compile_options(gnmr_compile_flags INTERFACE
  "$<$<COMPILE_LANG_AND_ID:CXX,GNU,Clang,AppleClang>:${warnings}>"
  # g++ 12 warns of overlaps and ends inside its own std::string that cannot be (GCC bug 105651 and its kin).
  "$<$<AND:$<COMPILE_LANG_AND_ID:CXX,GNU>,$<VERSION_LESS:$<CXX_COMPILER_VERSION>,13>>:${false_alarms}>"
  $<$<COMPILE_LANG_AND_ID:C,GNU,Clang,AppleClang>:-Wall;-Wextra;-Wpedantic;-Wshadow;-Wconversion>
  $<$<AND:$<BOOL:${GNMR_WERROR}>,$<COMPILE_LANG_AND_ID:CXX,GNU,Clang,AppleClang>>:-Werror>
  $<$<AND:$<BOOL:${GNMR_WERROR}>,$<COMPILE_LANG_AND_ID:C,GNU,Clang,AppleClang>>:-Werror>)
if(GNMR_SANITIZE)
  # The core's loops are judged too: alignment, shifts, float casts.
  add_compile_options(-fsanitize=${GNMR_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${GNMR_SANITIZE})
  if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    # Their run-time parts are in no C program, and C programs load libgnmr.so.
    add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fno-sanitize=vptr,function>)
  endif()
endif()

# gnmr_add_layer(NAME [FOLDER lab/NAME] SOURCES... ) makes the target gnmr_NAME from the sources of gnmr/NAME, or of
# gnmr/FOLDER; headers are included with that folder's name.
function(gnmr_add_layer name)
  cmake_parse_arguments(ARG "" "FOLDER" "SOURCES;PUBLIC;PRIVATE" ${ARGN})
  if(NOT ARG_FOLDER)
    set(ARG_FOLDER ${name})
  endif()
  set(link ${CMAKE_BINARY_DIR}/layers/${name}/gnmr/${ARG_FOLDER})
  get_filename_component(link_dir ${link} DIRECTORY)
  file(MAKE_DIRECTORY ${link_dir})
  file(CREATE_LINK ${PROJECT_SOURCE_DIR}/gnmr/${ARG_FOLDER} ${link} SYMBOLIC)
  add_library(gnmr_${name} STATIC ${ARG_SOURCES})
  set_target_properties(gnmr_${name} PROPERTIES
    POSITION_INDEPENDENT_CODE ON CXX_EXTENSIONS OFF
    CXX_VISIBILITY_PRESET hidden C_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
  target_include_directories(gnmr_${name} PUBLIC $<BUILD_INTERFACE:${CMAKE_BINARY_DIR}/layers/${name}>)
  target_compile_features(gnmr_${name} PUBLIC cxx_std_20)
  target_link_libraries(gnmr_${name} PUBLIC ${ARG_PUBLIC} PRIVATE $<BUILD_INTERFACE:gnmr_compile_flags> ${ARG_PRIVATE})
endfunction()

# gnmr_add_lane_kernels(TARGET AVX2_SOURCE [AVX512_SOURCE]): the flags of a layer that does arithmetic in lanes, and its
# kernels for newer machines, where the processor may be one (the choice is made at run time).
#
# Every operation is rounded by itself. -fno-trapping-math and -fno-math-errno change no value; they let the compiler
# choose lanes instead of branches.
function(gnmr_add_lane_kernels target avx2_source)
  target_compile_options(${target} PRIVATE
    $<$<CXX_COMPILER_ID:GNU,Clang,AppleClang>:-ffp-contract=off;-fno-trapping-math;-fno-math-errno>
    # Loops are asked to become lanes; without optimisation, or under a sanitizer, clang says that they did not.
    $<$<CXX_COMPILER_ID:Clang,AppleClang>:-Wno-pass-failed>
    $<$<AND:$<CXX_COMPILER_ID:GNU>,$<NOT:$<CONFIG:Debug>>>:-O3>)
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
    set_source_files_properties(${avx2_source} PROPERTIES COMPILE_OPTIONS -mavx2)
    if(ARGN)
      set_source_files_properties(${ARGN} PROPERTIES
        COMPILE_OPTIONS "-mavx2;-mavx512f;-mavx512vl;-mavx512dq;-mavx512bw")
    endif()
    target_compile_definitions(${target} PRIVATE GNMR_HAVE_AVX2_KERNELS)
  else()
    set_source_files_properties(${avx2_source} ${ARGN} PROPERTIES HEADER_FILE_ONLY ON)
  endif()
endfunction()

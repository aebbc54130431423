# SPDX-License-Identifier: Apache-2.0
# Installs into a folder of its own, moves it, and builds and runs tests/consumer against what is there.
file(REMOVE_RECURSE ${WORK})
set(prefix ${WORK}/moved)

function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "${ARGN}\n${output}")
  endif()
endfunction()

run(${CMAKE_COMMAND} --install ${BUILD} --component development --prefix ${WORK}/installed)
file(RENAME ${WORK}/installed ${prefix})

set(flags "")
if(SANITIZE)
  set(flags -DCMAKE_C_FLAGS=-fsanitize=${SANITIZE} -DCMAKE_CXX_FLAGS=-fsanitize=${SANITIZE})
endif()
run(${CMAKE_COMMAND} -S ${SOURCE} -B ${WORK}/build -G ${GENERATOR} -DCMAKE_PREFIX_PATH=${prefix}
  -DEXPECTED_VERSION=${VERSION} -DCMAKE_BUILD_TYPE=${BUILD_TYPE}
  -DCMAKE_C_COMPILER=${C_COMPILER} -DCMAKE_CXX_COMPILER=${CXX_COMPILER} ${flags})
run(${CMAKE_COMMAND} --build ${WORK}/build)
foreach(program c_shared c_static cpp_shared cpp_static)
  run(${WORK}/build/${program} ${WORK}/${program}.gnmr)
endforeach()

find_program(PKG_CONFIG pkg-config)
if(PKG_CONFIG)
  file(GLOB_RECURSE package_file ${prefix}/*/gnmr.pc)
  get_filename_component(package_dir ${package_file} DIRECTORY)
  set(ENV{PKG_CONFIG_PATH} ${package_dir})
  execute_process(COMMAND ${PKG_CONFIG} --cflags --libs gnmr OUTPUT_VARIABLE options COMMAND_ERROR_IS_FATAL ANY)
  separate_arguments(options UNIX_COMMAND "${options}")
  if(SANITIZE)
    list(APPEND options -fsanitize=${SANITIZE})
  endif()
  run(${C_COMPILER} -std=c99 ${SOURCE}/use_c.c -o ${WORK}/c_pkg_config ${options})
  file(GLOB_RECURSE library ${prefix}/*/libgnmr.so)
  get_filename_component(library_dir ${library} DIRECTORY)
  set(ENV{LD_LIBRARY_PATH} ${library_dir})
  run(${WORK}/c_pkg_config ${WORK}/c_pkg_config.gnmr)
endif()

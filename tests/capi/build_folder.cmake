# SPDX-License-Identifier: Apache-2.0
# Compiles and runs a C program with nothing but the folder of the libraries, by the lines of docs/c-api.md.
file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK})

function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "${ARGN}\n${output}")
  endif()
endfunction()

set(flags -std=c99 -I${LIB})
if(SANITIZE)
  list(APPEND flags -fsanitize=${SANITIZE})
endif()
run(${C_COMPILER} ${SOURCE} -o ${WORK}/shared ${flags} -L${LIB} -lgnmr -Wl,-rpath,${LIB})
run(${C_COMPILER} ${SOURCE} -o ${WORK}/static ${flags} ${LIB}/libgnmr.a -lstdc++ -lz -lm -pthread)
foreach(program shared static)
  run(${WORK}/${program} ${WORK}/${program}.gnmr)
endforeach()

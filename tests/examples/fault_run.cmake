# SPDX-License-Identifier: Apache-2.0
# Makes the example again and compares.
file(MAKE_DIRECTORY ${SCRATCH})
execute_process(COMMAND ${PYTHON} ${EXAMPLE}/generate.py ${SCRATCH} COMMAND_ERROR_IS_FATAL ANY)
foreach(name norms.csv truth.csv)
  execute_process(COMMAND ${CMAKE_COMMAND} -E compare_files ${EXAMPLE}/${name} ${SCRATCH}/${name}
                  RESULT_VARIABLE differs)
  if(differs)
    message(FATAL_ERROR "${EXAMPLE}/${name} is not what generate.py makes")
  endif()
endforeach()

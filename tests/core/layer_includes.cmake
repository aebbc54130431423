# SPDX-License-Identifier: Apache-2.0
# With the include path of the core a header of io is not found, and its own headers are.
file(WRITE ${SCRATCH}/down.cpp "#include \"gnmr/core/controller.h\"\n")
file(WRITE ${SCRATCH}/up.cpp "#include \"gnmr/io/trace.h\"\n")
execute_process(COMMAND ${COMPILER} -std=c++20 -fsyntax-only -I ${LAYERS}/core ${SCRATCH}/down.cpp
  COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${COMPILER} -std=c++20 -fsyntax-only -I ${LAYERS}/core ${SCRATCH}/up.cpp
  RESULT_VARIABLE refused ERROR_VARIABLE message)
if(NOT refused OR NOT message MATCHES "gnmr/io/trace.h")
  message(FATAL_ERROR "the core could include a header of io")
endif()

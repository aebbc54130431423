# SPDX-License-Identifier: Apache-2.0
# Writes a CTest file with one test per suite of a GoogleTest program: starting a process costs more than most tests.
# cmake -D PROGRAM=... -D PREFIX=... -D OUTPUT=... -P discover_suites.cmake
execute_process(COMMAND ${PROGRAM} --gtest_list_tests
  OUTPUT_VARIABLE list ERROR_VARIABLE message RESULT_VARIABLE failed TIMEOUT 60)
if(failed)
  message(FATAL_ERROR "${PROGRAM} does not list its tests: ${failed}\n${list}${message}")
endif()
string(REGEX MATCHALL "(^|\n)[A-Za-z0-9_/]+\\." suites "${list}")
# Skipped is a suite in which nothing ran and nothing failed.
set(all_skipped "PASSED  \\] 0 tests\\.[\r\n]+(\\[  SKIPPED \\][^\n]*\n)+\n*$")
set(tests "")
foreach(suite IN LISTS suites)
  string(REGEX REPLACE "^\n|\\.$" "" suite "${suite}")
  string(APPEND tests "add_test([=[${PREFIX}.${suite}]=] [=[${PROGRAM}]=] [=[--gtest_filter=${suite}.*]=])\n"
    "set_tests_properties([=[${PREFIX}.${suite}]=] PROPERTIES SKIP_REGULAR_EXPRESSION [=[${all_skipped}]=]\n"
    # Threads that spin while they wait are slow where tests run side by side.
    "  ENVIRONMENT OMP_WAIT_POLICY=PASSIVE)\n")
endforeach()
file(WRITE ${OUTPUT} "${tests}")

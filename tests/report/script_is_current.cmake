# SPDX-License-Identifier: Apache-2.0
# Bundles WEB (gnmr/report/web) with NPM and NODE in the folder WORK, and compares the result with what is committed.
cmake_minimum_required(VERSION 3.22)
file(REMOVE_RECURSE ${WORK}/src)
file(COPY ${WEB}/src ${WEB}/package.json ${WEB}/package-lock.json ${WEB}/.npmrc ${WEB}/build.mjs DESTINATION ${WORK})
# A machine without a network should learn so soon.
execute_process(COMMAND ${NPM} ci --ignore-scripts --prefer-offline --fetch-retries=1 --fetch-timeout=30000
  WORKING_DIRECTORY ${WORK} RESULT_VARIABLE failed OUTPUT_QUIET ERROR_VARIABLE why)
if(failed)
  message("skipped: npm ci did not work: ${why}")
  return()
endif()
file(MAKE_DIRECTORY ${WORK}/made)
execute_process(COMMAND ${NODE} build.mjs made WORKING_DIRECTORY ${WORK} COMMAND_ERROR_IS_FATAL ANY)
foreach(name report.js report.js.hash)
  file(SHA256 ${WORK}/made/${name} made)
  file(SHA256 ${WEB}/${name} committed)
  if(NOT made STREQUAL committed)
    message(FATAL_ERROR "gnmr/report/web/${name} is not what its sources give: make report-script")
  endif()
endforeach()

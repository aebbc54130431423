# SPDX-License-Identifier: Apache-2.0
# Bundles the script of reports in the folder WORK and writes OUTPUT, a source that holds it. Packages are installed
# only when their list has changed. Whatever fails, the build goes on: the stub takes the script's place.
cmake_minimum_required(VERSION 3.22)

function(take_stub why)
  message("-- Charts of reports are drawn as plain SVG: ${why} (${WORK}/build.log)")
  configure_file(${STUB} ${OUTPUT} COPYONLY)
  file(TOUCH ${OUTPUT})
endfunction()

file(MAKE_DIRECTORY ${WORK})
file(REMOVE_RECURSE ${WORK}/src ${WORK}/dist)
file(COPY ${WEB}/src ${WEB}/package.json ${WEB}/package-lock.json ${WEB}/.npmrc ${WEB}/build.mjs DESTINATION ${WORK})

file(SHA256 ${WEB}/package-lock.json wanted)
set(installed none)
if(EXISTS ${WORK}/installed)
  file(READ ${WORK}/installed installed)
endif()
if(NOT installed STREQUAL wanted)
  # A machine without a network should learn so soon.
  execute_process(COMMAND ${NPM} ci --ignore-scripts --prefer-offline --fetch-retries=1 --fetch-timeout=30000
    WORKING_DIRECTORY ${WORK} RESULT_VARIABLE failed OUTPUT_FILE ${WORK}/build.log ERROR_FILE ${WORK}/build.log TIMEOUT 300)
  if(failed)
    take_stub("npm ci did not work")
    return()
  endif()
  file(WRITE ${WORK}/installed ${wanted})
endif()

execute_process(COMMAND ${NODE} build.mjs dist WORKING_DIRECTORY ${WORK}
  RESULT_VARIABLE failed OUTPUT_FILE ${WORK}/build.log ERROR_FILE ${WORK}/build.log)
if(failed)
  take_stub("esbuild did not work")
  return()
endif()
file(READ ${WORK}/dist/report.js code)
file(READ ${WORK}/dist/report.js.hash hash)
file(WRITE ${OUTPUT} "// Made from web/src.
#include \"gnmr/report/page_text.h\"

namespace gnmr::report {

PageScript page_script() {
  return {R\"gnmr_text(${code})gnmr_text\", \"${hash}\"};
}

}  // namespace gnmr::report
")

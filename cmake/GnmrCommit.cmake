# SPDX-License-Identifier: Apache-2.0
# GNMR_COMMIT_TEXT: the commit that is built, for run.json and results. CMake runs again after a commit, not after an
# edit: `-dirty` says how the work tree was then.
set(GNMR_COMMIT "" CACHE STRING "Commit that results name [what git says]")
set(GNMR_COMMIT_TEXT "${GNMR_COMMIT}")
if(GNMR_COMMIT_TEXT STREQUAL "")
  find_package(Git QUIET)
  if(GIT_FOUND AND EXISTS "${PROJECT_SOURCE_DIR}/.git")
    execute_process(COMMAND "${GIT_EXECUTABLE}" describe --always --dirty --abbrev=10
      WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}" OUTPUT_VARIABLE GNMR_COMMIT_TEXT
      OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    if(EXISTS "${PROJECT_SOURCE_DIR}/.git/logs/HEAD")
      set_property(DIRECTORY "${PROJECT_SOURCE_DIR}" APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS
        "${PROJECT_SOURCE_DIR}/.git/logs/HEAD")
    endif()
  endif()
endif()
if(GNMR_COMMIT_TEXT STREQUAL "")
  set(GNMR_COMMIT_TEXT unknown)
endif()

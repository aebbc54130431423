# SPDX-License-Identifier: Apache-2.0
# Writes OUTPUT, a source that holds the texts of pages from the folder WEB.
cmake_minimum_required(VERSION 3.22)
set(code "// Made from gnmr/report/web.
#include \"gnmr/report/page_text.h\"

namespace gnmr::report {
")
foreach(pair style_text:style.css template_text:page.html script_text:report.js script_hash:report.js.hash)
  string(REPLACE ":" ";" pair ${pair})
  list(GET pair 0 function)
  list(GET pair 1 file)
  file(READ ${WEB}/${file} text)
  string(APPEND code "
std::string_view ${function}() {
  return R\"gnmr_text(${text})gnmr_text\";
}
")
endforeach()
file(WRITE ${OUTPUT} "${code}
}  // namespace gnmr::report
")

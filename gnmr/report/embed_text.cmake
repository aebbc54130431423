# SPDX-License-Identifier: Apache-2.0
# Writes OUTPUT, a source that holds the text of web/style.css or web/page.html.
cmake_minimum_required(VERSION 3.22)
get_filename_component(name ${TEXT} NAME)
set(function_of_style.css style_text)
set(function_of_page.html template_text)
file(READ ${TEXT} text)
file(WRITE ${OUTPUT} "// Made from ${name}.
#include \"gnmr/report/page_text.h\"

namespace gnmr::report {

std::string_view ${function_of_${name}}() {
  return R\"gnmr_text(${text})gnmr_text\";
}

}  // namespace gnmr::report
")

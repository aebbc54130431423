// SPDX-License-Identifier: Apache-2.0
// The fixed texts of a page, built into the library from gnmr/report/web.
#pragma once

#include <string_view>

namespace gnmr::report {

/// web/style.css.
std::string_view style_text();

/// web/page.html, with @NAMES@ where something is put in.
std::string_view template_text();

/// The script that draws the charts, and the hash by which a browser knows it; both are empty where the build had no
/// npm (no_script.cpp).
struct PageScript {
  std::string_view code;
  std::string_view hash;
};
PageScript page_script();

}  // namespace gnmr::report

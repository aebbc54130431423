// SPDX-License-Identifier: Apache-2.0
// The fixed texts of a page, built into the library from gnmr/report/web.
#pragma once

#include <string_view>

namespace gnmr::report {

/// web/style.css.
std::string_view style_text();

/// web/page.html, with @NAMES@ where something is put in.
std::string_view template_text();

/// web/report.js, which draws the charts.
std::string_view script_text();

/// web/report.js.hash, by which a browser knows the script.
std::string_view script_hash();

}  // namespace gnmr::report

// SPDX-License-Identifier: Apache-2.0
#include "gnmr/report/page.h"

#include <fmt/format.h>

#include <functional>
#include <string_view>

#include "gnmr/report/html.h"
#include "gnmr/report/page_text.h"

namespace gnmr::report {
namespace {

/// Puts `value_of(NAME)` in the place of every @NAME@. What is put in is not looked at again.
std::string filled(std::string_view form, const std::function<std::string(std::string_view)>& value_of) {
  std::string out;
  while (true) {
    const std::size_t begin = form.find('@');
    const std::size_t end = begin == std::string_view::npos ? begin : form.find('@', begin + 1);
    if (end == std::string_view::npos) return out + std::string(form);
    out += form.substr(0, begin);
    out += value_of(form.substr(begin + 1, end - begin - 1));
    form.remove_prefix(end + 1);
  }
}

// Readers without the script have words in the place of charts.
constexpr std::string_view kWordsStyle =
    "<style>.words, [data-panel][hidden] { display: block; }\n"
    ".choice, .figure > :not(h2, h3, .words) { display: none; }</style>";
constexpr std::string_view kWordsNote =
    "<p class=\"remarks words\">Charts need JavaScript, and a report that was made without <code>--plain</code>: here "
    "they are given in words.</p>\n";

// Nothing may be loaded from anywhere, and no script runs but the one that was built in.
std::string content_policy(bool interactive) {
  std::string policy =
      "default-src 'none'; base-uri 'none'; form-action 'none'; style-src 'unsafe-inline'; img-src data:";
  if (interactive) policy += "; script-src '" + std::string(script_hash()) + "'";
  return policy;
}

std::string script_html(const std::string& payload) {
  if (payload.empty()) return {};
  return "<script type=\"application/json\" id=\"report-data\">" + payload + "</script>\n<script>" +
         std::string(script_text()) + "</script>\n";
}

}  // namespace

std::string page_html(const Page& page) {
  return filled(template_text(), [&](std::string_view name) -> std::string {
    if (name == "TITLE") return escaped(page.title);
    if (name == "SUBTITLE") return page.subtitle.empty() ? std::string() : paragraph(page.subtitle, "subtitle");
    if (name == "KIND") return escaped(page.kind);
    if (name == "POLICY") return content_policy(!page.payload.empty());
    if (name == "STYLE") return std::string(style_text());
    if (name == "WORDS") {
      return page.payload.empty() ? std::string(kWordsStyle) : fmt::format("<noscript>{}</noscript>", kWordsStyle);
    }
    if (name == "BODY") return std::string(kWordsNote) + page.body;
    if (name == "PROGRAM") return page.program.empty() ? std::string("gnmr") : escaped(page.program);
    if (name == "SCRIPT") return script_html(page.payload);
    return {};
  });
}

}  // namespace gnmr::report

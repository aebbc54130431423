// SPDX-License-Identifier: Apache-2.0
#include "gnmr/report/figure.h"

#include <fmt/format.h>

#include "gnmr/report/html.h"

namespace gnmr::report {

std::string heading(int level, const std::string& text) {
  return fmt::format("<h{0}>{1}</h{0}>\n", level, escaped(text));
}

std::string figure_html(const Figure& figure, int level) {
  std::string html = "<section class=\"card figure\">\n" + heading(level, figure.title) + figure.before;
  html += fmt::format(
      "<div class=\"chart\" data-chart=\"{}\" data-index=\"{}\" style=\"height:{:.0f}px\" role=\"img\" "
      "aria-label=\"{}\"></div>\n",
      figure.chart, figure.index, figure.height, escaped(figure.alternative));
  if (!figure.caption.empty()) html += paragraph(figure.caption, "caption");
  return html + paragraph(figure.alternative, "words") + "</section>\n";
}

}  // namespace gnmr::report

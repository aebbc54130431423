// SPDX-License-Identifier: Apache-2.0
#include "gnmr/report/figure.h"

#include <fmt/format.h>

#include "gnmr/report/html.h"

namespace gnmr::report {

std::string heading(int level, const std::string& text) {
  return fmt::format("<h{0}>{1}</h{0}>\n", level, escaped(text));
}

std::string figure_html(const Figure& figure, const PageStyle& style) {
  std::string html = "<section class=\"card\">\n" + heading(style.heading, figure.title) + figure.before;
  if (style.interactive) {
    html += fmt::format(
        "<div class=\"chart\" data-chart=\"{}\" data-run=\"{}\" style=\"height:{:.0f}px\" role=\"img\" "
        "aria-label=\"{}\"></div>\n",
        figure.chart, figure.run, figure.height, escaped(figure.alternative));
  } else {
    html += "<div class=\"scroll\" role=\"region\" tabindex=\"0\" aria-label=\"" + escaped(figure.title) + "\">" +
            figure.picture() + "</div>\n";
  }
  if (!figure.caption.empty()) html += paragraph(figure.caption, "caption");
  return html + "</section>\n";
}

}  // namespace gnmr::report

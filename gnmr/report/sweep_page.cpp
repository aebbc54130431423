// SPDX-License-Identifier: Apache-2.0
#include "gnmr/report/sweep_page.h"

#include <algorithm>

#include "gnmr/report/figure.h"
#include "gnmr/report/html.h"
#include "gnmr/report/number_format.h"
#include "gnmr/report/page.h"
#include "gnmr/report/payload.h"
#include "gnmr/report/run_page.h"

namespace gnmr::report {
namespace {

std::string dash_of(std::size_t line) { return line % 4 == 0 ? std::string() : " dash" + std::to_string(line % 4); }

bool has_points(const SweepChart& chart) {
  return std::any_of(chart.lines.begin(), chart.lines.end(),
                     [](const SweepLine& line) { return !line.curve.values.empty(); });
}

std::string chart_html(const SweepChart& chart, std::size_t index) {
  std::vector<LegendEntry> entries;
  for (std::size_t i = 0; i < chart.lines.size(); ++i) {
    entries.emplace_back(line_class(i) + " with-dot" + dash_of(i), chart.lines[i].name);
  }
  if (chart.level) entries.emplace_back("level-key", chart.level_name);
  std::string alternative = chart.y_name + " over " + chart.x_name;
  for (const SweepLine& line : chart.lines) {
    if (line.curve.values.empty()) continue;
    alternative += "; " + line.name + " from " + number_text(line.curve.values.front()) + " to " +
                   number_text(line.curve.values.back());
  }
  return figure_html({.chart = "sweep",
                      .index = index,
                      .title = chart.title,
                      .before = legend(entries),
                      .caption = chart.caption,
                      .alternative = alternative});
}

std::string table_html(const SweepPage& page) {
  Table table(page.table_title);
  for (const SweepColumn& column : page.columns) table.column(column.title, column.is_number, column.help);
  for (const std::vector<std::string>& row : page.rows) table.row(row);
  return "<section class=\"card\">" + heading(2, page.table_title) + paragraph(page.table_caption, "caption") +
         table.html() + "</section>\n";
}

}  // namespace

std::string sweep_html(const SweepPage& page) {
  std::string body = facts_html(page.facts) + bullet_list(page.remarks, "remarks");
  for (const auto& [title, text] : page.sections) {
    body += "<section class=\"card\">" + heading(2, title) + paragraph(text, "caption") + "</section>\n";
  }
  for (std::size_t i = 0; i < page.charts.size(); ++i) {
    if (has_points(page.charts[i])) body += chart_html(page.charts[i], i);
  }
  body += table_html(page);
  return page_html({.title = page.title,
                    .subtitle = page.subtitle,
                    .kind = "Sweep of options",
                    .body = body,
                    .payload = sweep_payload(page),
                    .program = page.program});
}

}  // namespace gnmr::report

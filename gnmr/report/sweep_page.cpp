// SPDX-License-Identifier: Apache-2.0
#include "gnmr/report/sweep_page.h"

#include <algorithm>

#include "gnmr/report/figure.h"
#include "gnmr/report/html.h"
#include "gnmr/report/number_format.h"
#include "gnmr/report/page.h"
#include "gnmr/report/plain_charts.h"
#include "gnmr/report/run_page.h"
#include "gnmr/report/svg_plot.h"

namespace gnmr::report {
namespace {

constexpr PageStyle kPlain{.interactive = false, .heading = 2};

std::string dash_of(std::size_t line) { return line % 4 == 0 ? std::string() : " dash" + std::to_string(line % 4); }

std::string picture_of(const SweepChart& chart, const std::string& alternative) {
  std::vector<double> x_values;
  std::vector<double> y_values{0};
  for (const SweepLine& line : chart.lines) {
    x_values.insert(x_values.end(), line.curve.steps.begin(), line.curve.steps.end());
    y_values.insert(y_values.end(), line.curve.values.begin(), line.curve.values.end());
  }
  if (chart.level) y_values.push_back(*chart.level);
  AxisRange y = range_of(y_values, false);
  y.low = 0;
  const AxisRange x = range_of(x_values, false);
  SvgPlot plot(
      {.height = 300, .x = x, .y = y, .x_name = chart.x_name, .y_name = chart.y_name, .alternative = alternative});
  if (chart.level) plot.level(*chart.level, chart.level_name);
  for (std::size_t i = 0; i < chart.lines.size(); ++i) {
    plot.line(chart.lines[i].curve, arm_class(i) + dash_of(i));
    plot.dots(chart.lines[i].curve, arm_class(i));
  }
  return plot.svg();
}

std::string chart_html(const SweepChart& chart) {
  std::vector<LegendEntry> entries;
  for (std::size_t i = 0; i < chart.lines.size(); ++i) {
    entries.emplace_back(arm_class(i) + " with-dot" + dash_of(i), chart.lines[i].name);
  }
  std::string alternative = chart.y_name + " over " + chart.x_name;
  for (const SweepLine& line : chart.lines) {
    if (line.curve.values.empty()) continue;
    alternative += "; " + line.name + " from " + number_text(line.curve.values.front()) + " to " +
                   number_text(line.curve.values.back());
  }
  return figure_html({.chart = {},
                      .height = 300,
                      .title = chart.title,
                      .before = legend(entries),
                      .caption = chart.caption,
                      .alternative = alternative,
                      .picture = [&] { return picture_of(chart, alternative); }},
                     kPlain);
}

std::string table_html(const SweepPage& page) {
  Table table(page.table_title);
  for (const SweepColumn& column : page.columns) table.column(column.title, column.is_number, column.help);
  for (const std::vector<std::string>& row : page.rows) table.row(row);
  return "<section class=\"card\">" + heading(kPlain.heading, page.table_title) +
         paragraph(page.table_caption, "caption") + table.html() + "</section>\n";
}

}  // namespace

std::string sweep_html(const SweepPage& page) {
  std::string body = facts_html(page.facts) + bullet_list(page.remarks, "remarks");
  for (const auto& [title, text] : page.sections) {
    body += "<section class=\"card\">" + heading(kPlain.heading, title) + paragraph(text, "caption") + "</section>\n";
  }
  for (const SweepChart& chart : page.charts) {
    const bool has_points = std::any_of(chart.lines.begin(), chart.lines.end(),
                                        [](const SweepLine& line) { return !line.curve.values.empty(); });
    if (has_points) body += chart_html(chart);
  }
  body += table_html(page);
  return page_html({.title = page.title,
                    .subtitle = page.subtitle,
                    .kind = "Sweep of options",
                    .body = body,
                    .payload = {},
                    .program = page.program});
}

}  // namespace gnmr::report

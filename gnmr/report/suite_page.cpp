// SPDX-License-Identifier: Apache-2.0
#include "gnmr/report/suite_page.h"

#include <algorithm>

#include "gnmr/report/html.h"
#include "gnmr/report/run_page.h"

namespace gnmr::report {
namespace {

std::string arms_html(const SuiteView& suite) {
  if (suite.arms.empty()) return {};
  std::string html = "<section class=\"card\"><h2>What is compared</h2>\n<dl class=\"arms\">\n";
  for (std::size_t i = 0; i < suite.arms.size(); ++i) {
    const ArmView& arm = suite.arms[i];
    html += "<div><dt><span class=\"key " + line_class(i) + "\"></span>" + escaped(arm.label) + "</dt><dd>" +
            escaped(arm.about.empty() ? std::string("(nothing more is said of it)") : arm.about) + "</dd></div>\n";
  }
  return html + "</dl></section>\n";
}

std::string summary_html(const SuiteView& suite) {
  if (!suite.summary || suite.summary->columns.empty()) return {};
  Table table("Arms and measures");
  table.column("arm");
  std::string help;
  for (const lab::SummaryColumn& column : suite.summary->columns) {
    table.column(column.title, true, column.help);
    if (column.help.empty()) continue;
    help += "<dt>" + escaped(column.title) + "</dt><dd>" + escaped(column.help) + "</dd>\n";
  }
  for (const lab::SummaryRow& row : suite.summary->rows) {
    std::vector<std::string> cells{row.label};
    for (const lab::SummaryColumn& column : suite.summary->columns) {
      const auto cell = row.cells.find(column.key);
      cells.push_back(cell == row.cells.end() ? std::string() : cell->second.text);
    }
    table.row(cells);
  }
  std::string html = "<section class=\"card\"><h2>Arms and measures</h2>\n" + table.html();
  if (!help.empty()) {
    html += "<details><summary>What the measures mean</summary><dl class=\"help\">" + help + "</dl></details>\n";
  }
  return html + "</section>\n";
}

std::string runs_table_html(const SuiteView& suite) {
  if (suite.run_rows.empty()) return {};
  Table table("Runs");
  table.column("arm");
  table.column("seed", true);
  table.column("state");
  table.column("steps", true);
  table.column("training loss", true, "mean of the last tenth of the steps");
  table.column("held-out, high", true, "all units in high precision");
  table.column("held-out, low", true, "all units on the low path");
  table.column("skipped updates", true);
  table.column("recoveries", true);
  for (const RunRow& row : suite.run_rows) {
    table.row({row.arm, row.seed, row.state, row.steps, row.train_loss, row.eval_high, row.eval_low, row.skipped,
               row.recoveries});
  }
  return "<section class=\"card\"><h2>Runs</h2>\n" + table.html() + "</section>\n";
}

struct ArmsFigure {
  ArmCurves ArmView::*pick;
  std::string chart;
  std::string title;
};

std::string arms_figure_html(const SuiteView& suite, const ArmsFigure& what) {
  std::vector<LegendEntry> entries;
  for (std::size_t i = 0; i < suite.arms.size(); ++i) {
    const ArmCurves& curves = suite.arms[i].*what.pick;
    const bool any = std::any_of(curves.seeds.begin(), curves.seeds.end(), [](const Curve& c) { return !c.empty(); });
    if (any) entries.emplace_back(line_class(i) + " dash" + std::to_string(i % 4), suite.arms[i].label);
  }
  if (entries.empty()) return {};
  const std::string alternative =
      what.title + ": " + std::to_string(entries.size()) + " arms; the tables have the final numbers";
  return figure_html({.chart = what.chart,
                      .height = 340,
                      .title = what.title,
                      .before = legend(entries),
                      .caption = "Thin lines are seeds; the thick line is their mean, as far as all seeds have come.",
                      .alternative = alternative});
}

std::string gaps_html(const SuiteView& suite) {
  if (suite.gaps.empty()) return {};
  std::string alternative = suite.gap_title + ":";
  for (const Interval& gap : suite.gaps) alternative += " " + suite.arms[gap.arm].label + " " + gap.text + ";";
  return figure_html({.chart = "gaps",
                      .height = 70 + 40 * static_cast<double>(suite.gaps.size()),
                      .title = "How much of the gap each arm closes",
                      .caption = "A dot is the estimate, the line its interval. At the dashed lines, 0 is as bad as "
                                 "low precision alone and 1 as good as "
                                 "high precision.",
                      .alternative = alternative});
}

// One run is shown at a time and a choice switches; without the script all are shown, with their names.
std::string runs_html(const SuiteView& suite) {
  if (suite.runs.empty()) return {};
  std::string html = "<h2 class=\"part\">Each run</h2>\n";
  html += "<p class=\"choice\"><label for=\"run-choice\">Run to show</label> <select id=\"run-choice\">\n";
  for (std::size_t i = 0; i < suite.runs.size(); ++i) {
    html += "<option value=\"" + std::to_string(i) + "\"" + (i == suite.chosen_run ? " selected" : "") + ">" +
            escaped(suite.runs[i].title) + "</option>\n";
  }
  html += "</select></p>\n";
  for (std::size_t i = 0; i < suite.runs.size(); ++i) {
    const RunView& run = suite.runs[i];
    html += "<div class=\"run\" data-panel=\"" + std::to_string(i) + "\"" + (i == suite.chosen_run ? "" : " hidden") +
            ">\n<h2 class=\"part words\">" + escaped(run.title) + "</h2>\n";
    if (!run.subtitle.empty()) html += paragraph(run.subtitle, "subtitle");
    html += run_html(run, i, 3) + "</div>\n";
  }
  return html;
}

}  // namespace

std::string suite_html(const SuiteView& suite) {
  std::string html = bullet_list(suite.notes, "notes") + bullet_list(suite.remarks, "remarks");
  html += summary_html(suite) + gaps_html(suite) + arms_html(suite);
  html += arms_figure_html(suite, {&ArmView::train_loss, "arms-train", "Training loss of all arms"});
  html += arms_figure_html(
      suite, {&ArmView::eval_high, "arms-high", "Held-out loss of all arms, all units in high precision"});
  html +=
      arms_figure_html(suite, {&ArmView::eval_low, "arms-low", "Held-out loss of all arms, all units on the low path"});
  html +=
      arms_figure_html(suite, {&ArmView::budget_use, "arms-use", "Use of the budget by the arms with a controller"});
  return html + runs_table_html(suite) + runs_html(suite);
}

}  // namespace gnmr::report

// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "gnmr/core/message_text.h"
#include "gnmr/io/options_json.h"
#include "gnmr/tune_columns.h"
#include "gnmr/tune_table.h"

namespace gnmr::app {
namespace {

/// Points in ascending order, since replays come with the given value first.
report::Curve curve_of(const std::map<double, double>& points) {
  report::Curve curve;
  for (const auto& [x, y] : points) curve.add(x, y);
  return curve;
}

bool as_given(const TuneOutcome& outcome, const lab::TuneResult& result) {
  return result.candidate.options.lock_steps == outcome.given.lock_steps &&
         result.candidate.options.max_o == outcome.given.max_o;
}

/// What is swept in a family: along x, and a line for each value of the other.
struct Axes {
  bool by_evidence;
  std::string x_name;
  std::string line_name;
  double (*x)(const lab::TuneResult&);
  double (*line)(const lab::TuneResult&);
};

const Axes kNorms{.by_evidence = false,
                  .x_name = "factor on tau - 1, delta_tau and fall_tau",
                  .line_name = "noise_factor",
                  .x = [](const lab::TuneResult& result) { return result.candidate.factor; },
                  .line = [](const lab::TuneResult& result) { return result.candidate.options.noise_factor; }};
const Axes kErrors{.by_evidence = true,
                   .x_name = "error_factor",
                   .line_name = "error_ceiling",
                   .x = [](const lab::TuneResult& result) { return result.candidate.options.error_factor; },
                   .line = [](const lab::TuneResult& result) { return result.candidate.options.error_ceiling; }};

report::SweepChart lines_by_value(const TuneOutcome& outcome, const Axes& axes, double (*y)(const lab::TuneScore&)) {
  std::map<double, std::map<double, double>> lines;
  for (const lab::TuneResult& result : outcome.results) {
    if (result.candidate.by_evidence() != axes.by_evidence || !as_given(outcome, result)) continue;
    lines[axes.line(result)][axes.x(result)] = y(result.score);
  }
  report::SweepChart chart;
  chart.x_name = axes.x_name;
  for (const auto& [value, points] : lines) {
    chart.lines.push_back({fmt::format("{} {:.3g}", axes.line_name, value), curve_of(points)});
  }
  return chart;
}

report::SweepChart truth_chart(const TuneOutcome& outcome, const Axes& axes) {
  std::map<double, double> recall, precision, f_score;
  double given_line = 0;
  for (const lab::TuneResult& result : outcome.results) {
    if (result.candidate.by_evidence() == axes.by_evidence && is_given(result)) given_line = axes.line(result);
  }
  for (const lab::TuneResult& result : outcome.results) {
    if (result.candidate.by_evidence() != axes.by_evidence || !as_given(outcome, result)) continue;
    if (axes.line(result) != given_line) continue;
    recall[axes.x(result)] = result.score.recall;
    f_score[axes.x(result)] = result.score.f_score;
    // Without an admission there is no precision, and no point.
    if (!std::isnan(result.score.precision)) precision[axes.x(result)] = result.score.precision;
  }
  report::SweepChart chart;
  chart.x_name = axes.x_name;
  chart.y_name = "share";
  chart.lines = {{"recall", curve_of(recall)}, {"precision", curve_of(precision)}, {"F-score", curve_of(f_score)}};
  return chart;
}

void add_charts(const TuneOutcome& outcome, const Axes& axes, report::SweepPage& page) {
  const std::string family = axes.by_evidence ? "selector evidence" : "selector norms";
  report::SweepChart risks = lines_by_value(outcome, axes, [](const lab::TuneScore& score) { return score.own_rate; });
  risks.title = "Risks outside common steps, " + family;
  risks.y_name = "risks / 1000 unit-steps";
  risks.caption = "With lock_steps and max_o as given.";
  if (!outcome.rule.truth) {
    risks.level = outcome.rule.rate;
    risks.level_name = fmt::format("at most {:g}", outcome.rule.rate);
  }
  page.charts.push_back(std::move(risks));
  report::SweepChart sees = lines_by_value(outcome, axes, [](const lab::TuneScore& score) {
    return std::isnan(score.sees_error) ? score.sees_rise : score.sees_error;
  });
  sees.title = axes.by_evidence ? "Smallest error of the median unit that is seen"
                                : "Smallest jump of the median unit's norm that is seen";
  sees.y_name = axes.by_evidence ? "relative error" : "times its mean";
  page.charts.push_back(std::move(sees));
  if (!outcome.rule.truth || outcome.results.front().score.faults == 0) return;
  report::SweepChart truth = truth_chart(outcome, axes);
  truth.title = "Faults met, " + family;
  truth.caption = "With everything else as given.";
  page.charts.push_back(std::move(truth));
}

}  // namespace

report::SweepPage tune_page(const TuneOutcome& outcome, const std::string& program) {
  report::SweepPage page;
  page.title = "Options for " + outcome.run;
  page.subtitle = fmt::format("{} of a recorded run of {} and {}", counted(outcome.results.size(), "replay"),
                              counted(outcome.steps, "step"), counted(outcome.units, "unit"));
  page.program = program;
  std::string why;
  for (const auto& [family, choice] : {std::pair("Thresholds of norms: ", &outcome.choice.norms),
                                       {"Thresholds of errors: ", &outcome.choice.evidence}}) {
    if (*choice) why += (why.empty() ? "" : " ") + std::string(family) + (*choice)->why + ".";
  }
  page.sections.emplace_back("Why these options", why);
  page.sections.emplace_back("The options that it would choose, as a file for --config",
                             io::write_options(outcome.choice.options));
  add_charts(outcome, kNorms, page);
  if (outcome.choice.evidence) add_charts(outcome, kErrors, page);
  page.table_title = "All replays";
  page.table_caption =
      "> chosen, = as given, * no other replay with that selector is as good in everything. A recorded "
      "run does not answer to recovery: futile recoveries are an upper bound.";
  const std::vector<TuneColumn> columns = tune_columns(outcome);
  for (const TuneColumn& column : columns) {
    page.columns.push_back({column.title.empty() ? "mark" : column.title, column.is_number, column.help});
  }
  for (std::size_t row = 0; row < outcome.results.size(); ++row) {
    page.rows.emplace_back();
    for (const TuneColumn& column : columns) page.rows.back().push_back(column.cell(row));
  }
  return page;
}

}  // namespace gnmr::app

// SPDX-License-Identifier: Apache-2.0
#include "gnmr/report/plain_charts.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "gnmr/report/heat_colour.h"
#include "gnmr/report/number_format.h"
#include "gnmr/report/svg_plot.h"

namespace gnmr::report {
namespace {

constexpr std::size_t kArmColours = 8;

AxisRange steps_of(const RunView& run) { return {run.first_step - 0.5, run.last_step + 0.5}; }

AxisRange values_of(std::initializer_list<const Curve*> curves, bool logarithmic) {
  std::vector<double> values;
  for (const Curve* const curve : curves) values.insert(values.end(), curve->values.begin(), curve->values.end());
  return range_of(values, logarithmic);
}

double rows_height(std::size_t rows, double row_height) {
  return 70 + std::clamp(static_cast<double>(rows) * row_height, 60.0, 640.0);
}

/// Neighbours of one colour become one run. Colours: 0 to kHeatColours - 1, then one for what is not finite.
std::array<std::vector<SvgPlot::RowRun>, kHeatColours + 1> runs_by_colour(const RatioMap& map) {
  std::array<std::vector<SvgPlot::RowRun>, kHeatColours + 1> runs;
  constexpr std::size_t kNone = kHeatColours + 1;
  const auto colour_at = [&](std::size_t row, std::size_t column) -> std::size_t {
    const float ratio = map.at(row, column);
    if (std::isnan(ratio)) return kNone;
    return std::isfinite(ratio) && ratio > 0 ? heat_colour(ratio) : kHeatColours;
  };
  const auto start = [&](std::size_t column) {
    return static_cast<double>(map.first_step) - 0.5 +
           static_cast<double>(map.column_steps) * static_cast<double>(column);
  };
  for (std::size_t row = 0; row < map.units.size(); ++row) {
    for (std::size_t column = 0; column < map.columns;) {
      const std::size_t colour = colour_at(row, column);
      std::size_t end = column + 1;
      while (end < map.columns && colour_at(row, end) == colour) ++end;
      if (colour != kNone) runs[colour].push_back({row, start(column), start(end)});
      column = end;
    }
  }
  return runs;
}

}  // namespace

std::string arm_class(std::size_t arm) { return "c" + std::to_string(arm % kArmColours + 1); }

std::string plain_loss(const RunView& run, const std::string& alternative) {
  AxisRange y = values_of({&run.train_loss, &run.eval_high, &run.eval_low}, false);
  if (run.loss_ceiling) y.high = std::min(y.high, *run.loss_ceiling + 0.05 * (*run.loss_ceiling - y.low));
  SvgPlot plot({.height = 320, .x = steps_of(run), .y = y, .y_name = "loss (nats/token)", .alternative = alternative});
  plot.line(run.train_loss, "c1 thin");
  plot.line(run.eval_high, "c3");
  plot.dots(run.eval_high, "c3");
  plot.line(run.eval_low, "c2 dashed");
  plot.dots(run.eval_low, "c2");
  return plot.svg();
}

std::string plain_grad_norm(const RunView& run, const std::string& alternative) {
  SvgPlot plot({.height = 280,
                .x = steps_of(run),
                .y = values_of({&run.grad_norm}, true),
                .y_name = "gradient norm",
                .alternative = alternative});
  for (const double step : run.skipped_steps) plot.mark_x(step, "skipped");
  plot.line(run.grad_norm, "c1 thin");
  return plot.svg();
}

std::string plain_heat_map(const RunView& run, const std::string& alternative) {
  const HeatMap& heat = *run.heat;
  SvgPlot plot({.height = rows_height(heat.units.size(), 17),
                .x = steps_of(run),
                .rows = heat.units,
                .alternative = alternative});
  const auto runs = runs_by_colour(heat.ratios);
  for (std::size_t colour = 0; colour < kHeatColours; ++colour) {
    plot.row_runs(runs[colour], "h" + std::to_string(colour));
  }
  plot.row_runs(runs[kHeatColours], "non-finite");
  const auto outline = [&](const Bar& bar, std::string_view css_class) {
    plot.bar(bar.row, static_cast<double>(bar.first_step) - 0.5, static_cast<double>(bar.last_step) + 0.5, 1.0,
             css_class);
  };
  for (const Bar& bar : heat.recoveries) outline(bar, "recovery-outline");
  for (const Bar& bar : heat.faults) outline(bar, "fault-outline");
  return plot.svg();
}

std::string plain_timeline(const RunView& run, const std::string& alternative) {
  static constexpr std::array<std::string_view, 3> kEnds{"bar released", "bar futile", "bar open"};
  const Timeline& timeline = *run.timeline;
  SvgPlot plot({.height = rows_height(timeline.units.size(), 20),
                .x = steps_of(run),
                .rows = timeline.units,
                .alternative = alternative});
  for (const Bar& bar : timeline.bars) {
    plot.bar(bar.row, static_cast<double>(bar.first_step) - 0.5, static_cast<double>(bar.last_step) + 0.5, 0.6,
             kEnds[static_cast<std::size_t>(bar.end)]);
  }
  for (const RowMark& denial : timeline.denials) plot.row_dot(denial.row, static_cast<double>(denial.step), "denied");
  return plot.svg();
}

std::string plain_use(const RunView& run, const std::string& alternative) {
  Curve use;
  double most = 1;
  for (const InUse& in_use : run.in_use) {
    use.add(static_cast<double>(in_use.step) - 0.5, static_cast<double>(in_use.units));
    most = std::max(most, static_cast<double>(in_use.units));
  }
  if (run.budget) most = std::max(most, static_cast<double>(*run.budget));
  SvgPlot plot({.height = 220,
                .x = steps_of(run),
                .y = {0, most * 1.25},
                .y_name = "units in recovery",
                .alternative = alternative});
  plot.stairs(use, "c3");
  if (run.budget) plot.level(static_cast<double>(*run.budget), "budget: " + std::to_string(*run.budget));
  return plot.svg();
}

std::string plain_arms(const SuiteView& suite, ArmCurves ArmView::*pick, const std::string& y_name,
                       const std::string& alternative) {
  std::vector<Curve> all;
  std::vector<double> values;
  for (const ArmView& arm : suite.arms) {
    for (const Curve& curve : (arm.*pick).seeds) {
      all.push_back(curve);
      values.insert(values.end(), curve.values.begin(), curve.values.end());
    }
  }
  AxisRange y = range_of(values, false);
  if (pick == &ArmView::budget_use) {
    y = {0, std::max(110.0, y.high)};
  } else if (const auto ceiling = loss_ceiling(all)) {
    y.high = std::min(y.high, *ceiling + 0.05 * (*ceiling - y.low));
  }
  SvgPlot plot({.height = 340,
                .x = {suite.first_step - 0.5, suite.last_step + 0.5},
                .y = y,
                .y_name = y_name,
                .alternative = alternative});
  for (std::size_t arm = 0; arm < suite.arms.size(); ++arm) {
    for (const Curve& curve : (suite.arms[arm].*pick).seeds) plot.line(curve, arm_class(arm) + " faint");
  }
  for (std::size_t arm = 0; arm < suite.arms.size(); ++arm) {
    plot.line((suite.arms[arm].*pick).mean, arm_class(arm) + " thick dash" + std::to_string(arm % 4));
  }
  return plot.svg();
}

std::string plain_gaps(const SuiteView& suite, const std::string& alternative) {
  std::vector<std::string> rows;
  std::vector<double> ends{0, 1};
  for (const Interval& gap : suite.gaps) {
    rows.push_back(suite.arms[gap.arm].label);
    ends.insert(ends.end(), {gap.low, gap.high, gap.value});
  }
  AxisRange x = range_of(ends, false);
  x.high += 0.2 * (x.high - x.low);  // room for the words beside the last dot
  SvgPlot plot({.height = rows_height(rows.size(), 36),
                .x = x,
                .rows = rows,
                .x_name = suite.gap_title,
                .alternative = alternative});
  plot.mark_x(0, "level");
  plot.mark_x(1, "level");
  for (std::size_t row = 0; row < suite.gaps.size(); ++row) {
    const Interval& gap = suite.gaps[row];
    plot.row_line(row, gap.low, gap.high, arm_class(gap.arm) + " thick");
    plot.row_dot(row, gap.value, arm_class(gap.arm));
    plot.row_text(row, std::max(gap.high, gap.value), gap.text);
  }
  return plot.svg();
}

}  // namespace gnmr::report

// SPDX-License-Identifier: Apache-2.0
#include "gnmr/report/suite_view.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "gnmr/core/error.h"
#include "gnmr/report/number_format.h"
#include "gnmr/report/run_facts.h"

namespace gnmr::report {
namespace {

constexpr std::size_t kCurvePoints = 300;

// A page holds all runs: the more there are, the less of each.
ViewLimits limits_for(std::size_t runs) {
  ViewLimits limits{.map = {.columns = 400, .rows = 80},
                    .curve_points = 800,
                    .timeline_rows = 30,
                    .timeline_bars = 1000,
                    .events = 20,
                    .reruns = 10,
                    .recoveries = 20};
  if (runs > 12) limits.map = {.columns = 240, .rows = 60};
  if (runs > 12) limits.curve_points = 400;
  return limits;
}

class SuiteBuilder {
 public:
  explicit SuiteBuilder(const SuiteFiles& suite) : suite_(suite), limits_(limits_for(suite.runs.size())) {}

  SuiteView build() {
    view_.title = suite_.title;
    view_.notes = suite_.notes;
    view_.remarks = suite_.remarks;
    for (const lab::Arm& arm : suite_.arms) view_.arms.push_back({.label = arm.label, .about = arm.about});
    for (const SuiteRunPlace& place : suite_.runs) add_run(place);
    finish_curves();
    if (suite_.summary) add_summary();
    choose_run();
    return std::move(view_);
  }

 private:
  std::size_t arm_index(const std::string& name) const {
    const auto found =
        std::find_if(suite_.arms.begin(), suite_.arms.end(), [&](const lab::Arm& arm) { return arm.name == name; });
    return static_cast<std::size_t>(found - suite_.arms.begin());
  }

  void add_run(const SuiteRunPlace& place) {
    ArmView& arm = view_.arms[arm_index(place.arm)];
    RunRow row{.arm = arm.label, .seed = std::to_string(place.seed), .state = "finished"};
    RunFiles run;
    try {
      run = read_run_files(place.directory, limits_.map);
    } catch (const Error& error) {
      view_.remarks.push_back(arm.label + ", seed " + row.seed + ", is left out: " + error.what());
      row.state = "cannot be read";
      view_.run_rows.push_back(row);
      return;
    }
    if (!place.finished) row.state = "not finished";
    describe(run, row);
    view_.run_rows.push_back(row);
    add_curves(run, arm);
    RunView shown = make_run_view(std::move(run), limits_);
    shown.title = arm.label + ", seed " + row.seed;
    view_.runs.push_back(std::move(shown));
  }

  static void describe(const RunFiles& run, RunRow& row) {
    if (run.metrics) {
      const std::vector<run::TrainLine>& train = run.metrics->train;
      if (!train.empty()) row.steps = std::to_string(train.back().step);
      row.train_loss = number_text(final_train_loss(*run.metrics));
      if (!run.metrics->evals.empty()) {
        row.eval_high = number_text(run.metrics->evals.back().loss_high);
        row.eval_low = number_text(run.metrics->evals.back().loss_low);
      }
      row.skipped = std::to_string(
          std::count_if(train.begin(), train.end(), [](const run::TrainLine& point) { return !point.applied; }));
    }
    if (run.journal && !watched_only(run)) row.recoveries = std::to_string(run.history.recoveries.size());
  }

  static void add_curves(const RunFiles& run, ArmView& arm) {
    Curve train;
    Curve high;
    Curve low;
    if (run.metrics) {
      for (const run::TrainLine& point : run.metrics->train) train.add(static_cast<double>(point.step), point.loss);
      for (const run::EvalLine& point : run.metrics->evals) {
        high.add(static_cast<double>(point.step), point.loss_high);
        low.add(static_cast<double>(point.step), point.loss_low);
      }
    }
    arm.train_loss.seeds.push_back(std::move(train));
    arm.eval_high.seeds.push_back(std::move(high));
    arm.eval_low.seeds.push_back(std::move(low));
    // Decisions that were only written used nothing.
    if (!run.journal || watched_only(run) || run.history.budget.value_or(0) == 0) return;
    Curve use;
    for (const InUse& in_use : run.history.in_use) {
      use.add(static_cast<double>(in_use.step), 100.0 * static_cast<double>(in_use.units) / *run.history.budget);
    }
    arm.budget_use.seeds.push_back(std::move(use));
  }

  void finish_curves() {
    double first = std::numeric_limits<double>::infinity();
    double last = -first;
    for (const RunView& run : view_.runs) {
      first = std::min(first, run.first_step);
      last = std::max(last, run.last_step);
    }
    if (first > last) return;
    view_.first_step = first;
    view_.last_step = last;
    for (ArmView& arm : view_.arms) {
      for (ArmCurves* const curves : {&arm.train_loss, &arm.eval_high, &arm.eval_low, &arm.budget_use}) {
        for (Curve& curve : curves->seeds) curve = thin_by_means(curve, first, last, kCurvePoints);
        curves->mean = mean_curve(curves->seeds);
      }
    }
  }

  void add_summary() {
    view_.summary = suite_.summary;
    view_.notes.insert(view_.notes.end(), suite_.summary->notes.begin(), suite_.summary->notes.end());
    for (lab::SummaryRow& row : view_.summary->rows) {
      const std::size_t arm = arm_index(row.arm);
      const auto gap = row.cells.find("gap_closed");
      if (arm == view_.arms.size()) continue;
      row.label = view_.arms[arm].label;
      if (gap == row.cells.end() || !std::isfinite(gap->second.value.value_or(NAN))) continue;
      const lab::SummaryCell& cell = gap->second;
      const auto finite_or_value = [&](const std::optional<double>& end) {
        return std::isfinite(end.value_or(NAN)) ? *end : *cell.value;
      };
      view_.gaps.push_back({arm, cell.text, *cell.value, finite_or_value(cell.low), finite_or_value(cell.high)});
    }
    for (const lab::SummaryColumn& column : view_.summary->columns) {
      if (column.key == "gap_closed") view_.gap_title = column.title;
    }
  }

  // The run with the most recoveries has the most to show; those that were carried out come first.
  void choose_run() {
    std::pair<bool, std::size_t> most;
    for (std::size_t i = 0; i < view_.runs.size(); ++i) {
      const RunView& run = view_.runs[i];
      const bool has_bars = run.journal && run.journal->timeline;
      const std::pair worth(run.journal && !run.watch_only, has_bars ? run.journal->timeline->bars.size() : 0);
      if (worth <= most) continue;
      most = worth;
      view_.chosen_run = i;
    }
  }

  const SuiteFiles& suite_;
  ViewLimits limits_;
  SuiteView view_;
};

}  // namespace

SuiteView make_suite_view(const SuiteFiles& suite) { return SuiteBuilder(suite).build(); }

}  // namespace gnmr::report

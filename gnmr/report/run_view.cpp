// SPDX-License-Identifier: Apache-2.0
#include "gnmr/report/run_view.h"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <unordered_map>

#include "gnmr/report/number_format.h"
#include "gnmr/report/run_facts.h"

namespace gnmr::report {
namespace {

void find_step_range(const RunFiles& run, RunView& view) {
  double first = std::numeric_limits<double>::infinity();
  double last = -first;
  const auto include = [&](auto step) {
    first = std::min(first, static_cast<double>(step));
    last = std::max(last, static_cast<double>(step));
  };
  if (run.metrics && !run.metrics->train.empty()) {
    include(run.metrics->train.front().step);
    include(run.metrics->train.back().step);
  }
  if (run.metrics && !run.metrics->evals.empty()) {
    include(run.metrics->evals.front().step);
    include(run.metrics->evals.back().step);
  }
  if (run.journal && !run.journal->steps.empty()) {
    include(run.journal->steps.front().number);
    include(run.journal->steps.back().number);
  }
  for (const std::optional<UnitMap>* map : {&run.ratios, &run.errors}) {
    if (!*map || (*map)->columns == 0) continue;
    include((*map)->first_step);
    // A last column may be wider than the steps that it has. As a double, since steps may be as large as numbers can
    // be.
    include(static_cast<double>((*map)->first_step) +
            static_cast<double>((*map)->column_steps) * static_cast<double>((*map)->columns - 1));
  }
  if (first > last) return;
  view.first_step = first;
  view.last_step = std::max(last, first + 1);
}

// A journal alone, as `gnmr replay` writes it, may know the loss too.
Curve train_loss_of(const RunFiles& run) {
  Curve loss;
  if (run.metrics) {
    for (const run::TrainLine& point : run.metrics->train) loss.add(static_cast<double>(point.step), point.loss);
  } else if (run.journal) {
    for (const io::JournalStepEntry& entry : run.journal->steps) {
      if (entry.step) loss.add(static_cast<double>(entry.number), entry.step->loss);
    }
  }
  return loss;
}

LossCurves loss_curves(const RunFiles& run, std::size_t most) {
  Curve high;
  Curve low;
  if (run.metrics) {
    for (const run::EvalLine& point : run.metrics->evals) {
      high.add(static_cast<double>(point.step), point.loss_high);
      low.add(static_cast<double>(point.step), point.loss_low);
    }
  }
  std::array<Curve, 3> curves{thin_by_extremes(train_loss_of(run), most), thin_by_extremes(high, most),
                              thin_by_extremes(low, most)};
  const std::optional<double> ceiling = loss_ceiling(curves);
  return {std::move(curves[0]), std::move(curves[1]), std::move(curves[2]), ceiling};
}

NormCurve norm_curve(const run::Metrics& metrics, std::size_t most) {
  NormCurve shown;
  Curve norm;
  for (const run::TrainLine& point : metrics.train) {
    // 0 has no place on a logarithmic axis.
    if (point.grad_norm != 0) norm.add(static_cast<double>(point.step), point.grad_norm);
    if (point.applied) continue;
    ++shown.skipped_count;
    if (shown.skipped_steps.size() < most / 4) shown.skipped_steps.push_back(static_cast<double>(point.step));
  }
  shown.curve = thin_by_extremes(norm, most);
  return shown;
}

std::string unit_name(const RunFiles& run, std::size_t unit) {
  return unit < run.history.units.size() ? run.history.units[unit] : "unit " + std::to_string(unit + 1);
}

std::optional<HeatMap> heat_map(const RunFiles& run, MapKind kind, std::optional<UnitMap> map) {
  if (!map || map->columns == 0) return std::nullopt;
  HeatMap heat;
  heat.kind = kind;
  std::unordered_map<std::string, std::size_t> row_of_name;
  for (const std::size_t unit : map->units) {
    row_of_name.emplace(unit_name(run, unit), heat.units.size());
    heat.units.push_back(unit_name(run, unit));
  }
  for (const Recovery& recovery : run.history.recoveries) {
    const auto row = row_of_name.find(run.history.units[recovery.unit]);
    if (row == row_of_name.end()) continue;
    heat.recoveries.push_back({row->second, recovery.first_step, recovery.last_step, recovery.end});
  }
  for (const FaultSpan& fault : run.faults.value_or(std::vector<FaultSpan>())) {
    const auto row = row_of_name.find(fault.unit);
    if (row != row_of_name.end()) heat.faults.push_back({row->second, fault.first_step, fault.last_step});
  }
  if (kind == MapKind::errors && run.chronic) {
    for (const ChronicUnit& unit : run.chronic->units) {
      const auto row = row_of_name.find(unit.name);
      if (row != row_of_name.end()) heat.chronic.push_back(row->second);
    }
    std::sort(heat.chronic.begin(), heat.chronic.end());
  }
  heat.map = std::move(*map);
  return heat;
}

// Where there are too many units, those with the most recoveries and denials are shown.
void fill_timeline(const RunFiles& run, const ViewLimits& limits, JournalView& view) {
  const RecoveryHistory& history = run.history;
  std::vector<std::size_t> weight(history.units.size(), 0);
  for (const Recovery& recovery : history.recoveries) weight[recovery.unit] += 1000;
  for (const Denial& denial : history.denials) ++weight[denial.unit];
  std::vector<std::size_t> shown;
  for (std::size_t unit = 0; unit < weight.size(); ++unit) {
    if (weight[unit] > 0) shown.push_back(unit);
  }
  if (shown.empty()) return;
  Timeline timeline;
  if (shown.size() > limits.timeline_rows) {
    timeline.units_left_out = shown.size() - limits.timeline_rows;
    std::stable_sort(shown.begin(), shown.end(), [&](std::size_t a, std::size_t b) { return weight[a] > weight[b]; });
    shown.resize(limits.timeline_rows);
    std::sort(shown.begin(), shown.end());
  }
  std::unordered_map<std::size_t, std::size_t> row_of_unit;
  for (const std::size_t unit : shown) {
    row_of_unit.emplace(unit, timeline.units.size());
    timeline.units.push_back(history.units[unit]);
  }
  for (const Recovery& recovery : history.recoveries) {
    const auto row = row_of_unit.find(recovery.unit);
    if (row == row_of_unit.end() || timeline.bars.size() >= limits.timeline_bars) continue;
    timeline.bars.push_back({row->second, recovery.first_step, recovery.last_step, recovery.end});
  }
  for (const Denial& denial : history.denials) {
    const auto row = row_of_unit.find(denial.unit);
    if (row == row_of_unit.end() || timeline.denials.size() >= limits.timeline_bars) continue;
    timeline.denials.push_back({row->second, denial.step});
  }
  view.timeline = std::move(timeline);
}

// A staircase needs only the steps at which it changes; where these are too many, the highest of each stretch stays.
std::vector<InUse> thin_use(const std::vector<InUse>& use, std::size_t most) {
  std::vector<InUse> changes;
  for (std::size_t i = 0; i < use.size(); ++i) {
    if (i == 0 || i + 1 == use.size() || use[i].units != use[i - 1].units) changes.push_back(use[i]);
  }
  if (changes.size() <= most) return changes;
  std::vector<InUse> thin;
  for (std::size_t i = 0; i < most; ++i) {
    const auto begin = changes.begin() + static_cast<std::ptrdiff_t>(i * changes.size() / most);
    const auto end = changes.begin() + static_cast<std::ptrdiff_t>((i + 1) * changes.size() / most);
    const auto highest = std::max_element(begin, end, [](const InUse& a, const InUse& b) { return a.units < b.units; });
    thin.push_back({begin->step, highest->units});
  }
  return thin;
}

void fill_events(const RunFiles& run, std::size_t most, JournalView& view) {
  const std::vector<UnitEvent>& events = run.history.events;
  view.event_count = events.size();
  std::vector<std::size_t> order(events.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto severity = [&](std::size_t i) {
    const double value = events[i].severity.value_or(-1);
    return value >= 0 ? value : -1;  // NaN has no place in an order
  };
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return severity(a) > severity(b); });
  order.resize(std::min(order.size(), most));
  for (const std::size_t i : order) {
    const UnitEvent& event = events[i];
    view.events.push_back({.step = event.step,
                           .unit = run.history.units[event.unit],
                           .what = event.what,
                           .ratio = number_text(event.ratio),
                           .delta = number_text(event.delta),
                           .fall = number_text(event.fall),
                           .severity = number_text(event.severity)});
  }
}

void fill_reruns(const RunFiles& run, std::size_t most, JournalView& view) {
  view.worth = rerun_worth(*run.journal, run.metrics ? &*run.metrics : nullptr);
  for (const io::JournalStepEntry& entry : run.journal->steps) {
    for (const io::JournalTrial& trial : entry.trials) {
      if (view.reruns.size() == most) return;
      const std::size_t worst = worst_unit(trial);
      RerunRow row{.step = entry.number, .verdict = trial.rerun == "replay" ? trial.rerun : trial.verdict};
      row.outcome = to_string(outcome_of(trial));
      if (worst < trial.units.size()) row.units = trial.units[worst];
      if (trial.units.size() > 1) row.units += " and " + std::to_string(trial.units.size() - 1) + " more";
      if (worst < trial.places.size()) row.place = trial.places[worst];
      row.error = error_text(trial);
      row.loss = number_text(number_in(trial.losses, 0));
      row.rerun_loss = number_text(number_in(trial.losses, 1));
      row.distance = number_text(trial.distance);
      row.seconds = number_text(trial.seconds);
      view.reruns.push_back(std::move(row));
    }
  }
}

void fill_recoveries(const RunFiles& run, std::size_t most, JournalView& view) {
  view.audit = audit_run(run);
  for (const RecoveryAudit& recovery : costliest(view.audit.recoveries, most)) {
    view.recoveries.push_back(audit_row(recovery));
  }
}

JournalView journal_view(const RunFiles& run, const ViewLimits& limits) {
  JournalView view;
  view.in_use = thin_use(run.history.in_use, limits.curve_points);
  fill_timeline(run, limits, view);
  fill_events(run, limits.events, view);
  fill_recoveries(run, limits.recoveries, view);
  fill_reruns(run, limits.reruns, view);
  return view;
}

}  // namespace

RunView make_run_view(RunFiles run, const ViewLimits& limits) {
  RunView view;
  view.title = run.info && !run.info->label.empty() ? run.info->label : run.name;
  view.subtitle = run_subtitle(run);
  view.watch_only = watched_only(run);
  view.facts = run_facts(run);
  view.remarks = run.remarks;
  view.notes = run_notes(run);
  view.settings = run.settings;
  find_step_range(run, view);
  view.losses = loss_curves(run, limits.curve_points);
  if (run.metrics) view.grad_norm = norm_curve(*run.metrics, limits.curve_points);
  if (run.journal) {
    view.journal = journal_view(run, limits);
    if (run.history.budget) view.budget = *run.history.budget;
  }
  if (!view.budget && run.info && run.info->controller != "none" && run.info->budget > 0)
    view.budget = run.info->budget;
  view.heat = heat_map(run, MapKind::ratios, std::move(run.ratios));
  view.errors = heat_map(run, MapKind::errors, std::move(run.errors));
  view.chronic = std::move(run.chronic);
  return view;
}

}  // namespace gnmr::report

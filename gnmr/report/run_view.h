// SPDX-License-Identifier: Apache-2.0
// A run as it is shown: thinned curves, the heat map, recoveries, tables. Both versions of the page draw from this.
//
// Goals: everything that is chosen, counted or put in words is done here, once. Non-goals: HTML, colours, pixels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gnmr/report/audit.h"
#include "gnmr/report/curve.h"
#include "gnmr/report/run_files.h"
#include "gnmr/report/worth.h"

namespace gnmr::report {

/// A headline number, with its name.
struct Fact {
  std::string name;
  std::string value;
  std::string note = {};  // a few words below it
};

/// A bar in a row of a chart, over whole steps.
struct Bar {
  std::size_t row = 0;
  std::int64_t first_step = 0;
  std::int64_t last_step = 0;
  RecoveryEnd end = RecoveryEnd::released;
};

/// A mark in a row of a chart.
struct RowMark {
  std::size_t row = 0;
  std::int64_t step = 0;
};

/// Rows of units over steps.
struct HeatMap {
  MapKind kind = MapKind::ratios;
  UnitMap map;
  std::vector<std::string> units;  // the name of each row
  std::vector<Bar> recoveries;
  std::vector<Bar> faults;
  std::vector<std::size_t> chronic;  // rows of chronic units, where errors are shown
};

/// Which unit was in recovery when.
struct Timeline {
  std::vector<std::string> units;  // the name of each row
  std::vector<Bar> bars;
  std::vector<RowMark> denials;
  std::size_t units_left_out = 0;
};

/// A row of the table of events.
struct EventRow {
  std::int64_t step = 0;
  std::string unit;
  std::string what;
  std::string ratio, delta, fall, severity;
};

/// A row of the table of steps that were run again.
struct RerunRow {
  std::int64_t step = 0;
  std::string verdict;       // or `replay`
  std::string outcome = {};  // what it was worth
  std::string units = {};    // the one with the largest excess, and how many more
  std::string place = {};    // of that one
  std::string error = {};    // of that one, with how many times its limit that is
  std::string loss = {}, rerun_loss = {};
  std::string distance = {};
  std::string seconds = {};
};

/// The losses of a run, in one chart.
struct LossCurves {
  Curve train, eval_high, eval_low;
  std::optional<double> ceiling;  // of the chart; none: it shows all
};

/// The norm of the whole gradient, and the steps without an update.
struct NormCurve {
  Curve curve;
  std::vector<double> skipped_steps;  // the first of them
  std::size_t skipped_count = 0;
};

/// What the journal says: who was in recovery when, the table of events, and what recovery was worth and cost.
struct JournalView {
  std::optional<Timeline> timeline;  // where a unit was in recovery or denied
  std::vector<InUse> in_use;         // thinned to the steps at which it changes
  std::vector<EventRow> events;      // the most severe first
  std::size_t event_count = 0;       // of all, shown or not
  std::vector<RerunRow> reruns;
  RerunWorth worth;
  std::vector<AuditRow> recoveries;  // those that cost most, by step
  Audit audit;                       // of all
};

/// All that is shown of a run.
struct RunView {
  std::string title;
  std::string subtitle;
  bool watch_only = false;  // decisions were written, not carried out
  double first_step = 1;    // the steps that every chart shows
  double last_step = 1;
  std::vector<Fact> facts;
  std::vector<std::string> remarks;
  std::vector<std::pair<std::string, std::string>> settings;

  LossCurves losses;
  NormCurve grad_norm;
  std::optional<HeatMap> heat;    // of ratios
  std::optional<HeatMap> errors;  // of errors
  std::optional<ChronicUnits> chronic;
  std::optional<std::int64_t> budget;
  std::optional<JournalView> journal;  // where there is one
  std::vector<std::string> notes;      // modes, resumes and remarks of the run, in words
};

/// How much of a run is shown.
struct ViewLimits {
  UnitMapLimits map = {};
  std::size_t curve_points = 1600;
  std::size_t timeline_rows = 40;
  std::size_t timeline_bars = 3000;
  std::size_t events = 100;
  std::size_t reruns = 50;
  std::size_t recoveries = 100;
};

/// Chooses, counts and puts in words.
RunView make_run_view(RunFiles run, const ViewLimits& limits);

}  // namespace gnmr::report

// SPDX-License-Identifier: Apache-2.0
// A page about a sweep of options: headline numbers, charts of lines, a table. `gnmr tune --out` writes it.
//
// Goals: one file that needs nothing else, by the same means as the page of a run. Non-goals: knowing what was swept.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gnmr/report/curve.h"
#include "gnmr/report/run_view.h"

namespace gnmr::report {

/// A line of a chart.
struct SweepLine {
  std::string name;
  Curve curve;  // its steps are the chart's x
};

/// A chart of lines over what was swept; one without a point is left out.
struct SweepChart {
  std::string title;
  std::string x_name;
  std::string y_name;
  std::string caption = {};
  std::vector<SweepLine> lines;
  std::optional<double> level = {};  // a line across
  std::string level_name = {};
};

/// A column of the table.
struct SweepColumn {
  std::string title;
  bool is_number = true;
  std::string help = {};
};

/// All of it.
struct SweepPage {
  std::string title;
  std::string subtitle;
  std::vector<Fact> facts;
  std::vector<std::string> remarks;
  std::vector<std::pair<std::string, std::string>> sections;  // headings with a paragraph
  std::vector<SweepChart> charts;
  std::string table_title;
  std::string table_caption;
  std::vector<SweepColumn> columns;
  std::vector<std::vector<std::string>> rows;
  std::string program;  // named at the end
};

/// The page as HTML.
std::string sweep_html(const SweepPage& page);

}  // namespace gnmr::report

// SPDX-License-Identifier: Apache-2.0
// A page about a sweep with everything that one can have, names that would do harm as HTML included.
#pragma once

#include "gnmr/report/sweep_page.h"

namespace gnmr::test {

inline report::SweepPage sample_sweep() {
  report::SweepPage page;
  page.title = "Options for <b onmouseover=\"x\">norms.csv</b>";
  page.subtitle = "162 replays of a recorded run of 400 steps and 40 units";
  page.sections = {{"Why these options", "The highest F-score of 162 replays."},
                   {"The options that it would choose",
                    "{\"tau\":2,\"delta_tau\":0.5,\"fall_tau\":0.7,\"baseline\":1,"
                    "\"window\":5,\"noise_factor\":8,\"noise_beta\":0.98}"}};
  report::SweepChart chart{.title = "Risks", .x_name = "factor", .y_name = "risks / 1000 unit-steps", .lines = {}};
  chart.level = 0.5;
  chart.level_name = "at most 0.5";
  for (int line = 1; line <= 3; ++line) {
    report::Curve curve;
    for (const double factor : {0.5, 0.7, 1.0, 1.4, 2.0, 2.8}) curve.add(factor, line / factor);
    chart.lines.push_back({"noise_factor " + std::to_string(4 * line), curve});
  }
  page.charts = {chart, {.title = "Nothing at all", .x_name = "factor", .y_name = "share", .lines = {}}};
  page.table_title = "All replays";
  page.table_caption = "> chosen, = as given, * best";
  page.columns = {{"mark", false, "> chosen"}, {"tau", true}, {"risks/1000", true}};
  page.rows = {{">*", "1.5", "0.25"}, {"=", "2", ""}};
  page.program = "gnmr 0.1.0";
  return page;
}

}  // namespace gnmr::test

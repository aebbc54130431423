// SPDX-License-Identifier: Apache-2.0
// A chart in the page with its title: a place for the script to draw in, and words for readers without the script.
#pragma once

#include <cstddef>
#include <string>

namespace gnmr::report {

/// A chart.
struct Figure {
  std::string chart;        // the name by which the script knows it
  std::size_t index = 0;    // of the run or of the sweep's chart in the page's data; not used by charts of a suite
  double height = 300;      // in pixels
  std::string title;        // what one sees
  std::string before = {};  // HTML between title and chart: a legend
  std::string caption = {};
  std::string alternative;  // the chart in words
};

/// A heading of the given level.
std::string heading(int level, const std::string& text);

/// The figure as HTML.
std::string figure_html(const Figure& figure, int level = 2);

}  // namespace gnmr::report

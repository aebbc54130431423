// SPDX-License-Identifier: Apache-2.0
// A chart in the page with its title and words: a place for the script to draw in, or a finished picture.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

namespace gnmr::report {

/// How a page is drawn.
struct PageStyle {
  bool interactive = false;  // by the script; otherwise as SVG
  int heading = 2;           // level of the headings of a run
};

/// A chart.
struct Figure {
  std::string chart;        // the name by which the script knows it
  std::size_t run = 0;      // index of the run; not used by charts of a suite
  double height = 300;      // of the script's drawing, in pixels
  std::string title;        // what one sees
  std::string before = {};  // HTML between title and picture: a legend
  std::string caption = {};
  std::string alternative;               // the picture in words
  std::function<std::string()> picture;  // the SVG
};

/// A heading of the given level.
std::string heading(int level, const std::string& text);

/// The figure as HTML.
std::string figure_html(const Figure& figure, const PageStyle& style);

}  // namespace gnmr::report

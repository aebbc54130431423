// SPDX-License-Identifier: Apache-2.0
// A plot drawn as static SVG, for the plain version of the page.
//
// Goals: axes with names and round numbers, marks that CSS colours (so that dark mode works), small text.
// Non-goals: interaction, layout beyond one plot.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "gnmr/report/curve.h"

namespace gnmr::report {

/// A stretch of numbers on an axis.
struct AxisRange {
  double low = 0;
  double high = 1;
  bool logarithmic = false;
};

/// Where a plot is and what its axes say.
struct PlotFrame {
  double height = 300;
  AxisRange x = {};
  AxisRange y = {};                    // not used where there are rows
  std::vector<std::string> rows = {};  // names of rows from top to bottom, instead of a y axis
  std::string x_name = "optimizer step";
  std::string y_name = {};
  std::string alternative = {};  // what one sees, in words
};

/// Round numbers for the ticks of an axis: 1, 2 or 5 times a power of 10, or powers of 10.
std::vector<double> axis_ticks(const AxisRange& range, std::size_t about);

/// A range that covers the values and a little more; [0, 1] where there is none.
AxisRange range_of(const std::vector<double>& values, bool logarithmic);

/// One plot. Everything is clipped to its frame.
class SvgPlot {
 public:
  explicit SvgPlot(PlotFrame frame);

  /// Straight lines between the points of a curve, and a cross at the top for each bad step.
  void line(const Curve& curve, std::string_view css_class);

  /// A line that keeps its height until the next point, down to 0 as an area.
  void stairs(const Curve& curve, std::string_view css_class);

  /// A small circle at each point.
  void dots(const Curve& curve, std::string_view css_class);

  /// A line across at `y`, with words.
  void level(double y, std::string_view words);

  /// A line down at `x`.
  void mark_x(double x, std::string_view css_class);

  /// A line within a row.
  void row_line(std::size_t row, double from, double to, std::string_view css_class);

  /// A bar of part of a row's height.
  void bar(std::size_t row, double from, double to, double part, std::string_view css_class);

  /// A dot in a row.
  void row_dot(std::size_t row, double x, std::string_view css_class);

  /// Words in a row, to the right of `x`.
  void row_text(std::size_t row, double x, std::string_view words);

  /// Horizontal lines as thick as a row, all of one class: `runs` are row, from and to.
  struct RowRun {
    std::size_t row;
    double from, to;
  };
  void row_runs(const std::vector<RowRun>& runs, std::string_view css_class);

  /// The whole picture.
  std::string svg() const;

 private:
  double x_at(double x) const;
  double y_at(double y) const;
  double row_height() const;
  double row_middle(std::size_t row) const;
  void draw_x_axis();
  void draw_y_axis();
  void draw_rows();

  PlotFrame frame_;
  double left_ = 0, right_ = 0, top_ = 0, bottom_ = 0;
  std::string axes_;
  std::string marks_;
};

}  // namespace gnmr::report

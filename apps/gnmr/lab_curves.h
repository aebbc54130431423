// SPDX-License-Identifier: Apache-2.0
// Loss curves drawn with Braille characters, a panel an arm, side by side and on one scale.
//
// Goals: the eye compares panels, so all have the same axes; a loss that is not finite is a gap in the line.
// Non-goals: reports (gnmr/report draws those).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace gnmr::app {

/// A step and the loss that is drawn for it.
using CurvePoint = std::pair<std::int64_t, double>;

/// One panel: all seeds of an arm.
struct CurvePanel {
  std::string title;
  std::vector<std::vector<CurvePoint>> curves = {};
};

/// How large the picture is.
struct CurveStyle {
  std::size_t columns = 100;     // of the terminal
  std::size_t rows = 6;          // of a panel's drawing
  std::int64_t last_step = 100;  // of the horizontal axis, which begins with 1
};

/// A curve with each step's noise taken out: a running mean that forgets.
std::vector<CurvePoint> smoothed(const std::vector<CurvePoint>& curve);

/// The panels as lines, each with its line end. The vertical axis goes from the lowest loss to the highest that comes
/// after the first tenth of the steps: the fall at the beginning would leave no room for anything else.
std::string draw_panels(const std::vector<CurvePanel>& panels, const CurveStyle& style);

}  // namespace gnmr::app

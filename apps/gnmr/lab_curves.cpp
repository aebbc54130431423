// SPDX-License-Identifier: Apache-2.0
#include "gnmr/lab_curves.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "gnmr/lab_table.h"
#include "gnmr/messages.h"

namespace gnmr::app {
namespace {

constexpr double kCurveSmoothing = 0.9;
constexpr std::size_t kFewestColumns = 16;  // of a panel's drawing
constexpr std::size_t kLabelColumns = 5;    // such as `2.31 `
constexpr std::size_t kBetween = 2;
constexpr std::size_t kDotsAcross = 2;  // of a Braille character
constexpr std::size_t kDotsDown = 4;

/// Dots that can be set, and read as Braille characters.
class Canvas {
 public:
  Canvas(std::size_t columns, std::size_t rows) : columns_(columns), rows_(rows), cells_(columns * rows, 0) {}

  std::size_t width() const { return columns_ * kDotsAcross; }
  std::size_t height() const { return rows_ * kDotsDown; }

  void set(std::size_t x, std::size_t y) {
    constexpr std::array<std::array<std::uint8_t, 4>, 2> kBits{{{0x01, 0x02, 0x04, 0x40}, {0x08, 0x10, 0x20, 0x80}}};
    if (x >= width() || y >= height()) return;
    std::uint8_t& cell = cells_[y / kDotsDown * columns_ + x / kDotsAcross];
    cell = static_cast<std::uint8_t>(cell | kBits[x % kDotsAcross][y % kDotsDown]);
  }

  std::string row(std::size_t index) const {
    std::string text;
    for (std::size_t column = 0; column < columns_; ++column) {
      const std::uint8_t bits = cells_[index * columns_ + column];
      // U+2800 and the dots, in UTF-8.
      if (bits == 0) {
        text += ' ';
        continue;
      }
      text += '\xE2';
      text += static_cast<char>(0xA0U | (bits >> 6U));
      text += static_cast<char>(0x80U | (bits & 0x3FU));
    }
    return text;
  }

 private:
  std::size_t columns_;
  std::size_t rows_;
  std::vector<std::uint8_t> cells_;
};

struct Range {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();
};

Range range_of(const std::vector<CurvePanel>& panels, std::int64_t last_step) {
  Range late;
  Range all;
  const auto add = [](Range& range, double loss) {
    range.low = std::min(range.low, loss);
    range.high = std::max(range.high, loss);
  };
  for (const CurvePanel& panel : panels) {
    for (const std::vector<CurvePoint>& curve : panel.curves) {
      for (const auto& [step, loss] : curve) {
        if (!std::isfinite(loss)) continue;
        add(all, loss);
        if (10 * step > last_step) add(late, loss);
      }
    }
  }
  return late.low <= late.high ? late : all;
}

/// A line from one dot to the next, column by column.
void draw_curve(Canvas& canvas, const std::vector<CurvePoint>& curve, const Range& range, std::int64_t last_step) {
  const double span = std::max(range.high - range.low, 1e-9);
  const auto across =
      static_cast<double>(canvas.width() - 1) / static_cast<double>(std::max<std::int64_t>(last_step - 1, 1));
  const auto down = static_cast<double>(canvas.height() - 1);
  bool has_last = false;
  std::size_t last_y = 0;
  for (const auto& [step, loss] : curve) {
    if (!std::isfinite(loss) || loss > range.high) {
      has_last = false;
      continue;
    }
    const auto x = static_cast<std::size_t>(std::lround(static_cast<double>(step - 1) * across));
    const auto y = static_cast<std::size_t>(std::lround(std::clamp((range.high - loss) / span, 0.0, 1.0) * down));
    if (!has_last) last_y = y;
    for (std::size_t dot = std::min(y, last_y); dot <= std::max(y, last_y); ++dot) canvas.set(x, dot);
    last_y = y;
    has_last = true;
  }
}

/// The panels of one row of the picture.
void append_panels(std::string& text, const std::vector<CurvePanel>& panels, const Range& range,
                   const CurveStyle& style, std::size_t columns) {
  std::vector<Canvas> canvases;
  for (const CurvePanel& panel : panels) {
    Canvas& canvas = canvases.emplace_back(columns, style.rows);
    for (const std::vector<CurvePoint>& curve : panel.curves) draw_curve(canvas, curve, range, style.last_step);
  }
  const bool empty = range.low > range.high;
  const auto label = [&](std::size_t row) -> std::string {
    if (empty || (row != 0 && row + 1 != style.rows)) return "";
    return fmt::format("{:.2f}", row == 0 ? range.high : range.low);
  };
  text += std::string(kLabelColumns, ' ');
  for (const CurvePanel& panel : panels) text += pad_right(cut_to(printable(panel.title), columns), columns + kBetween);
  text += '\n';
  for (std::size_t row = 0; row < style.rows; ++row) {
    text += pad_right(label(row), kLabelColumns);
    for (const Canvas& canvas : canvases) text += canvas.row(row) + std::string(kBetween, ' ');
    text += '\n';
  }
}

}  // namespace

std::vector<CurvePoint> smoothed(const std::vector<CurvePoint>& curve) {
  std::vector<CurvePoint> result;
  double mean = 0;
  double weight = 0;
  for (const auto& [step, loss] : curve) {
    if (std::isfinite(loss)) {
      mean = kCurveSmoothing * mean + (1 - kCurveSmoothing) * loss;
      weight = kCurveSmoothing * weight + (1 - kCurveSmoothing);
    }
    result.emplace_back(step, std::isfinite(loss) ? mean / weight : loss);
  }
  return result;
}

std::string draw_panels(const std::vector<CurvePanel>& panels, const CurveStyle& style) {
  if (panels.empty() || style.rows == 0) return "";
  const Range range = range_of(panels, style.last_step);
  const std::size_t room = std::max(style.columns, kLabelColumns + kFewestColumns + kBetween) - kLabelColumns;
  const std::size_t a_row = std::min(panels.size(), std::max<std::size_t>(room / (kFewestColumns + kBetween), 1));
  const std::size_t columns = room / a_row - kBetween;
  std::string text;
  for (std::size_t first = 0; first < panels.size(); first += a_row) {
    const auto begin = panels.begin() + static_cast<std::ptrdiff_t>(first);
    const auto end = begin + static_cast<std::ptrdiff_t>(std::min(a_row, panels.size() - first));
    append_panels(text, {begin, end}, range, style, columns);
  }
  return text;
}

}  // namespace gnmr::app

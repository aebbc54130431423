// SPDX-License-Identifier: Apache-2.0
#include "gnmr/report/svg_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "gnmr/report/html.h"
#include "gnmr/report/number_format.h"

namespace gnmr::report {
namespace {

constexpr double kWidth = 960;
constexpr double kTextHeight = 14;
constexpr std::size_t kNameLetters = 24;

template <typename... Arguments>
void append(std::string& out, fmt::format_string<Arguments...> form, Arguments&&... arguments) {
  fmt::format_to(std::back_inserter(out), form, std::forward<Arguments>(arguments)...);
}

// Both ends of a name tell units apart. Cut between characters of UTF-8.
std::string shortened(const std::string& name) {
  if (name.size() <= kNameLetters) return name;
  const auto is_inside = [&](std::size_t at) { return (static_cast<unsigned char>(name[at]) & 0xC0U) == 0x80U; };
  std::size_t head = (kNameLetters - 1) * 2 / 5;
  while (head > 0 && is_inside(head)) --head;
  std::size_t tail = name.size() - (kNameLetters - 1 - head);
  while (tail < name.size() && is_inside(tail)) ++tail;
  return name.substr(0, head) + "…" + name.substr(tail);
}

double position(const AxisRange& range, double value) {
  if (range.logarithmic) return std::log(value / range.low) / std::log(range.high / range.low);
  return (value - range.low) / (range.high - range.low);
}

}  // namespace

std::vector<double> axis_ticks(const AxisRange& range, std::size_t about) {
  std::vector<double> ticks;
  const double count = static_cast<double>(std::max<std::size_t>(about, 1));
  if (range.logarithmic) {
    const double low = std::ceil(std::log10(range.low) - 1e-9);
    const double high = std::floor(std::log10(range.high) + 1e-9);
    const double stride = std::max(1.0, std::ceil((high - low) / count));
    for (double power = low; power <= high; power += stride) ticks.push_back(std::pow(10, power));
    if (ticks.size() >= 2) return ticks;
    return axis_ticks({range.low, range.high, false}, about);
  }
  const double rough = (range.high - range.low) / count;
  if (!(rough > 0) || !std::isfinite(rough)) return {range.low};
  const double power = std::pow(10, std::floor(std::log10(rough)));
  double stride = power;
  for (const double factor : {1.0, 2.0, 5.0, 10.0}) {
    stride = power * factor;
    if (stride >= rough) break;
  }
  for (double i = std::ceil(range.low / stride - 1e-9); i * stride <= range.high + stride * 1e-9; ++i) {
    ticks.push_back(i * stride);
    if (ticks.size() > 4 * about + 4) break;  // where numbers are too close for their size
  }
  return ticks;
}

AxisRange range_of(const std::vector<double>& values, bool logarithmic) {
  if (values.empty()) return {logarithmic ? 0.1 : 0.0, 1.0, logarithmic};
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  AxisRange range{*low, *high, logarithmic};
  if (logarithmic) {
    range.low = std::max(range.low, 1e-300) / 1.3;
    range.high = std::min(std::max(range.high, range.low) * 1.3, 1e300);
    return range;
  }
  const double margin = range.high > range.low ? 0.05 * (range.high - range.low) : std::abs(range.high) * 0.05 + 0.5;
  range.low -= margin;
  range.high += margin;
  return range;
}

SvgPlot::SvgPlot(PlotFrame frame) : frame_(std::move(frame)) {
  left_ = frame_.rows.empty() ? 76 : 200;
  right_ = kWidth - 24;
  top_ = 14;
  bottom_ = frame_.height - 52;
  if (frame_.rows.empty()) {
    draw_y_axis();
  } else {
    draw_rows();
  }
  draw_x_axis();
}

double SvgPlot::x_at(double x) const { return left_ + position(frame_.x, x) * (right_ - left_); }

double SvgPlot::y_at(double y) const {
  // Far outside is as good as just outside, and has fewer digits.
  return bottom_ - std::clamp(position(frame_.y, y), -1.0, 2.0) * (bottom_ - top_);
}

double SvgPlot::row_height() const { return (bottom_ - top_) / static_cast<double>(frame_.rows.size()); }

double SvgPlot::row_middle(std::size_t row) const { return top_ + (static_cast<double>(row) + 0.5) * row_height(); }

void SvgPlot::draw_x_axis() {
  for (const double tick : axis_ticks(frame_.x, 8)) {
    const double x = x_at(tick);
    append(axes_, "<path class=\"grid\" d=\"M{:.1f} {:.1f}V{:.1f}\"/>", x, top_, bottom_);
    append(axes_, "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>\n", x, bottom_ + 18,
           number_text(tick, 7));
  }
  append(axes_, "<path class=\"axis\" d=\"M{:.1f} {:.1f}H{:.1f}\"/>", left_, bottom_, right_);
  append(axes_, "<text class=\"name\" x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>\n",
         (left_ + right_) / 2, bottom_ + 42, escaped(frame_.x_name));
}

void SvgPlot::draw_y_axis() {
  const auto about = static_cast<std::size_t>(std::max(2.0, (bottom_ - top_) / 45));
  for (const double tick : axis_ticks(frame_.y, about)) {
    const double y = y_at(tick);
    append(axes_, "<path class=\"grid\" d=\"M{:.1f} {:.1f}H{:.1f}\"/>", left_, y, right_);
    append(axes_, "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>\n", left_ - 8, y + 4,
           number_text(tick));
  }
  const double middle = (top_ + bottom_) / 2;
  append(axes_,
         "<text class=\"name\" transform=\"translate(16 {:.1f}) rotate(-90)\" text-anchor=\"middle\">{}</text>\n",
         middle, escaped(frame_.y_name));
}

void SvgPlot::draw_rows() {
  const auto every = static_cast<std::size_t>(std::ceil(kTextHeight / row_height()));
  for (std::size_t row = 0; row < frame_.rows.size(); row += every) {
    append(axes_, "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>\n", left_ - 8, row_middle(row) + 4,
           escaped(shortened(frame_.rows[row])));
  }
}

void SvgPlot::line(const Curve& curve, std::string_view css_class) {
  if (!curve.steps.empty()) {
    append(marks_, "<path class=\"line {}\" d=\"M", css_class);
    for (std::size_t i = 0; i < curve.steps.size(); ++i) {
      append(marks_, "{}{:.1f} {:.1f}", i > 0 ? "L" : "", x_at(curve.steps[i]), y_at(curve.values[i]));
    }
    marks_ += "\"/>\n";
  }
  for (const double step : curve.bad_steps) {
    append(marks_, "<path class=\"line {}\" d=\"M{:.1f} {:.1f}l8 8m0 -8l-8 8\"/>\n", css_class, x_at(step) - 4,
           top_ + 3);
  }
}

void SvgPlot::stairs(const Curve& curve, std::string_view css_class) {
  if (curve.steps.empty()) return;
  append(marks_, "<path class=\"area {}\" d=\"M{:.1f} {:.1f}", css_class, x_at(curve.steps[0]), y_at(frame_.y.low));
  for (std::size_t i = 0; i < curve.steps.size(); ++i) {
    append(marks_, "V{:.1f}", y_at(curve.values[i]));
    append(marks_, "H{:.1f}", x_at(i + 1 < curve.steps.size() ? curve.steps[i + 1] : curve.steps[i] + 1));
  }
  append(marks_, "V{:.1f}\"/>\n", y_at(frame_.y.low));
}

void SvgPlot::dots(const Curve& curve, std::string_view css_class) {
  for (std::size_t i = 0; i < curve.steps.size(); ++i) {
    append(marks_, "<circle class=\"dot {}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3.5\"/>\n", css_class,
           x_at(curve.steps[i]), y_at(curve.values[i]));
  }
}

void SvgPlot::level(double y, std::string_view words) {
  append(marks_, "<path class=\"level\" d=\"M{:.1f} {:.1f}H{:.1f}\"/>", left_, y_at(y), right_);
  append(marks_, "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>\n", right_ - 6, y_at(y) - 6,
         escaped(words));
}

void SvgPlot::mark_x(double x, std::string_view css_class) {
  append(marks_, "<path class=\"{}\" d=\"M{:.1f} {:.1f}V{:.1f}\"/>\n", css_class, x_at(x), top_, bottom_);
}

void SvgPlot::row_line(std::size_t row, double from, double to, std::string_view css_class) {
  append(marks_, "<path class=\"line {}\" d=\"M{:.1f} {:.1f}H{:.1f}\"/>\n", css_class, x_at(from), row_middle(row),
         x_at(to));
}

void SvgPlot::bar(std::size_t row, double from, double to, double part, std::string_view css_class) {
  const double height = row_height() * part;
  append(marks_, "<rect class=\"{}\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\"/>\n", css_class,
         x_at(from), row_middle(row) - height / 2, std::max(1.5, x_at(to) - x_at(from)), height);
}

void SvgPlot::row_dot(std::size_t row, double x, std::string_view css_class) {
  append(marks_, "<circle class=\"dot {}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\"/>\n", css_class, x_at(x),
         row_middle(row));
}

void SvgPlot::row_text(std::size_t row, double x, std::string_view words) {
  append(marks_, "<text x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n", x_at(x) + 10, row_middle(row) + 4, escaped(words));
}

void SvgPlot::row_runs(const std::vector<RowRun>& runs, std::string_view css_class) {
  if (runs.empty()) return;
  // A little thicker than a row, so that no gaps show between them.
  append(marks_, "<path class=\"run {}\" stroke-width=\"{:.2f}\" d=\"", css_class, row_height() + 0.3);
  for (const RowRun& run : runs) {
    append(marks_, "M{:.1f} {:.1f}h{:.1f}", x_at(run.from), row_middle(run.row), x_at(run.to) - x_at(run.from) + 0.2);
  }
  marks_ += "\"/>\n";
}

std::string SvgPlot::svg() const {
  // Marks are clipped by a nested picture, which needs no name that must be unique in the page.
  return fmt::format(
      "<svg class=\"plot\" viewBox=\"0 0 {:.0f} {:.0f}\" role=\"img\" aria-label=\"{}\">\n{}"
      "<svg x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" viewBox=\"{:.1f} {:.1f} {:.1f} {:.1f}\">\n{}"
      "</svg></svg>\n",
      kWidth, frame_.height, escaped(frame_.alternative), axes_, left_, top_ - 2, right_ - left_, bottom_ - top_ + 2,
      left_, top_ - 2, right_ - left_, bottom_ - top_ + 2, marks_);
}

}  // namespace gnmr::report

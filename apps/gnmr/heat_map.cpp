// SPDX-License-Identifier: Apache-2.0
#include "gnmr/heat_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "gnmr/messages.h"

namespace gnmr::app {
namespace {

constexpr std::size_t kNameColumns = 22;
constexpr std::size_t kBudgetRows = 4;
constexpr std::size_t kLegendRows = 2;
constexpr std::size_t kFrameRows = 2;  // budget line and axis

// 256-colour codes from a collapse (blue) over the usual (dark grey) to a rise (red).
constexpr std::array<int, 9> kColors{27, 33, 38, 237, 235, 237, 178, 208, 196};
constexpr std::array<char, 9> kShades{'V', 'v', '-', ' ', ' ', ' ', '+', 'x', '#'};
// Lower ends of the bands, in log2 of the ratio: half and double of the mean begin the strong colours.
constexpr std::array<float, 8> kBands{-2.0F, -1.0F, -0.5F, -0.25F, 0.25F, 0.5F, 1.0F, 2.0F};

std::size_t band_of(float log2_ratio) {
  return static_cast<std::size_t>(std::lower_bound(kBands.begin(), kBands.end(), log2_ratio) - kBands.begin());
}

/// Cut to `width` characters (not bytes), from the left: the end of a unit's name matters most.
std::string fitted(const std::string& text, std::size_t width) {
  std::vector<std::size_t> starts;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if ((static_cast<unsigned char>(text[i]) & 0xC0U) != 0x80U) starts.push_back(i);
  }
  if (starts.size() <= width) return text + std::string(width - starts.size(), ' ');
  return "…" + text.substr(starts[starts.size() - (width - 1)]);
}

}  // namespace

HeatMap::HeatMap(const Controller& controller, const HeatMapStyle& style)
    : style_(style),
      units_(controller.units().size()),
      rows_(std::min(units_, std::max<std::size_t>(style.unit_rows, 1))),
      capacity_(std::max(style.columns, kFewestColumns) - kNameColumns - 1),
      budget_(controller.max_recovered()),
      was_recovered_(units_, 0) {
  for (UnitIndex unit = 0; unit < units_; ++unit) was_recovered_[unit] = controller.steps_left(unit) > 0 ? 1 : 0;
  std::vector<std::size_t> counts(rows_, 0);
  std::vector<std::size_t> firsts(rows_, units_);
  for (std::size_t unit = 0; unit < units_; ++unit) {
    ++counts[row_of(unit)];
    firsts[row_of(unit)] = std::min(firsts[row_of(unit)], unit);
  }
  for (std::size_t row = 0; row < rows_; ++row) {
    const std::string name = printable(controller.units()[firsts[row]].name);
    const std::string more = counts[row] > 1 ? fmt::format(" +{}", counts[row] - 1) : "";
    labels_.push_back(fitted(name, kNameColumns - more.size()) + more);
  }
}

void HeatMap::merge(Cell& into, const Cell& from) {
  if (std::abs(from.log2_ratio) > std::abs(into.log2_ratio)) into.log2_ratio = from.log2_ratio;
  into.sampled = into.sampled || from.sampled;
  into.non_finite = into.non_finite || from.non_finite;
  into.recovered = into.recovered || from.recovered;
}

void HeatMap::merge(Column& into, const Column& from) {
  into.peak = std::max(into.peak, from.peak);
  into.common = into.common || from.common;
  for (std::size_t row = 0; row < into.cells.size(); ++row) merge(into.cells[row], from.cells[row]);
}

void HeatMap::halve() {
  std::vector<Column> halved;
  halved.reserve(capacity_);
  for (std::size_t i = 0; i < columns_.size(); i += 2) {
    halved.push_back(std::move(columns_[i]));
    if (i + 1 < columns_.size()) merge(halved.back(), columns_[i + 1]);
  }
  in_last_ = columns_.size() % 2 == 0 ? 2 * stride_ : stride_;
  stride_ *= 2;
  columns_ = std::move(halved);
}

void HeatMap::add(const Controller& controller, const Decision& decision) {
  Column step{.first_step = decision.step, .peak = 0, .common = decision.common, .cells = std::vector<Cell>(rows_)};
  step.peak = static_cast<std::uint32_t>(decision.recovered.size());
  for (std::size_t unit = 0; unit < units_; ++unit) {
    const Signals signals = controller.signals(static_cast<UnitIndex>(unit));
    Cell cell{.log2_ratio = 0,
              .sampled = signals.sampled,
              .non_finite = signals.risk == RiskKind::non_finite,
              .recovered = was_recovered_[unit] != 0};
    if (signals.sampled && !cell.non_finite) {
      const double ratio = std::isnan(signals.ratio) ? 0 : signals.ratio;  // a gradient that is gone
      cell.log2_ratio = static_cast<float>(std::clamp(std::log2(ratio), -30.0, 30.0));
    }
    merge(step.cells[row_of(unit)], cell);
  }
  std::fill(was_recovered_.begin(), was_recovered_.end(), std::uint8_t{0});
  for (const UnitIndex unit : decision.recovered) was_recovered_[unit] = 1;
  last_step_ = decision.step;

  if (columns_.empty() || in_last_ == stride_) {
    if (columns_.size() == capacity_) halve();
  }
  if (columns_.empty() || in_last_ == stride_) {
    columns_.push_back(std::move(step));
    in_last_ = 1;
  } else {
    merge(columns_.back(), step);
    ++in_last_;
  }
}

void HeatMap::append_cell(std::string& out, const Cell& cell) const {
  const std::size_t band = band_of(cell.log2_ratio);
  char mark = cell.recovered ? 'o' : ' ';
  if (cell.non_finite) mark = '!';
  if (!cell.sampled) {
    out += cell.recovered ? 'o' : '\'';
  } else if (style_.color) {
    const int background = cell.non_finite ? 201 : kColors[band];
    out += fmt::format("\x1b[48;5;{}m\x1b[38;5;231m{}\x1b[0m", background, mark);
  } else {
    out += mark != ' ' ? mark : kShades[band];
  }
}

void HeatMap::append_units(std::string& out) const {
  for (std::size_t row = 0; row < rows_; ++row) {
    out += labels_[row];
    out += ' ';
    for (const Column& column : columns_) append_cell(out, column.cells[row]);
    out += '\n';
  }
}

void HeatMap::append_budget(std::string& out) const {
  static constexpr std::array<const char*, 9> kBars{" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  const std::string title = fmt::format("budget {}", budget_);
  out += fmt::format("{:>{}} ", title, kNameColumns);
  for (std::size_t i = 0; i < capacity_; ++i) out += i < columns_.size() && columns_[i].common ? "C" : "─";
  out += '\n';
  for (std::size_t row = 0; row < kBudgetRows; ++row) {
    out += fmt::format("{:>{}} ", row + 1 == kBudgetRows ? "units in recovery" : "", kNameColumns);
    for (const Column& column : columns_) {
      const double share = budget_ == 0 ? 0 : static_cast<double>(column.peak) / budget_;
      const double above = share * kBudgetRows - static_cast<double>(kBudgetRows - 1 - row);
      out += kBars[static_cast<std::size_t>(std::ceil(std::clamp(above, 0.0, 1.0) * 8))];
    }
    out += '\n';
  }
}

void HeatMap::append_axis(std::string& out) const {
  const std::string first = fmt::format("step {}", columns_.empty() ? 0 : columns_.front().first_step);
  const std::string last = fmt::format("{}", last_step_);
  const std::size_t width = std::max(columns_.size(), first.size() + last.size() + 1);
  out +=
      std::string(kNameColumns + 1, ' ') + first + std::string(width - first.size() - last.size(), ' ') + last + '\n';
  if (style_.color) {
    out += "GNMR ";
    constexpr std::array<const char*, 9> kNames{"<1/4", "1/4", "1/2", " ", "1", " ", "1.4", "2", ">4"};
    for (std::size_t band = 0; band < kColors.size(); ++band) {
      out += fmt::format("\x1b[48;5;{}m\x1b[38;5;231m {} \x1b[0m", kColors[band], kNames[band]);
    }
    out += '\n';
  } else {
    out += "GNMR: V <1/4  v <1/2  - <0.7  + >1.4  x >2  # >4\n";
  }
  out += "! not finite  o in recovery  ' no sample  C common step\n";
}

std::string HeatMap::draw() const {
  std::string out;
  append_units(out);
  append_budget(out);
  append_axis(out);
  return out;
}

std::size_t HeatMap::line_count() const { return rows_ + kBudgetRows + kFrameRows + kLegendRows; }

}  // namespace gnmr::app

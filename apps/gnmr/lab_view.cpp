// SPDX-License-Identifier: Apache-2.0
#include "gnmr/lab_view.h"

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <cmath>

#include "gnmr/core/message_text.h"
#include "gnmr/lab_curves.h"
#include "gnmr/lab_table.h"
#include "gnmr/live_view.h"
#include "gnmr/messages.h"

namespace gnmr::app {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kLabRedrawTime{250};
constexpr std::int64_t kLabPlainLines = 5;  // of a cell, where nothing can move
constexpr std::int64_t kCellBarWidth = 16;
constexpr std::size_t kCurveRows = 5;
constexpr std::size_t kMostPanels = 8;
constexpr std::size_t kLinesBesideUnits = 9;  // that style_for leaves beside unit_rows

std::atomic<int> stops{0};
extern "C" void on_stop_signal(int) { ++stops; }

void handle(void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  ::sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
}

std::string cell_bar(std::int64_t step, std::int64_t steps) {
  const std::int64_t full = kCellBarWidth * step / std::max<std::int64_t>(steps, 1);
  std::string text;
  for (std::int64_t cell = 0; cell < kCellBarWidth; ++cell) text += cell < full ? "█" : "░";
  return text;
}

std::string cell_duration_text(double seconds) {
  const auto whole = static_cast<std::int64_t>(std::lround(std::max(seconds, 0.0)));
  if (whole < 60) return fmt::format("{} s", whole);
  return whole < 3600 ? fmt::format("{}:{:02} min", whole / 60, whole % 60)
                      : fmt::format("{}:{:02} h", whole / 3600, whole % 3600 / 60);
}

std::vector<CurvePoint> curve_of(const lab::CellStatus& status) {
  std::vector<CurvePoint> curve;
  for (const lab::ProgressPoint& point : status.points) curve.emplace_back(point.step, point.loss);
  return smoothed(curve);
}

}  // namespace

LabView::LabView(const lab::Suite& suite, const LabViewStyle& style)
    : suite_(suite), style_(style), moving_(!style.quiet && is_terminal(style.stream)), next_(Clock::now()) {
  stops = 0;
  handle(on_stop_signal);
}

LabView::~LabView() {
  clear();
  handle(SIG_DFL);
}

int LabView::stops_wanted() {
  if (stops > 0 && !told_of_stop_) {
    told_of_stop_ = true;
    print("stopping: the running cells write their checkpoints (once more ends them at once)");
  }
  return stops;
}

void LabView::print(const std::string& line) {
  if (style_.quiet) return;
  clear();
  put(style_.stream, line + "\n");
}

void LabView::clear() {
  if (drawn_lines_ > 0) put(style_.stream, fmt::format("\x1b[{}A\r\x1b[J", drawn_lines_));
  drawn_lines_ = 0;
}

void LabView::started(std::size_t cell, bool resumed) {
  places_[cell] = {.started = Clock::now()};
  if (!moving_) print(suite_.cells()[cell].name + (resumed ? ": goes on" : ": begins"));
}

void LabView::ended(std::size_t cell, const lab::CellStatus& status) {
  const std::string& name = suite_.cells()[cell].name;
  if (!status.result) {
    print(name + " FAILED: " + printable(status.why));
    return;
  }
  const lab::CellResult& result = *status.result;
  if (result.diverged()) {
    print(name + ": DIVERGED, its loss at the end is not finite");
  } else {
    print(fmt::format("{}: held-out loss {:.4f}, {}", name, result.loss,
                      counted(result.admissions, "recovery", "recoveries")));
  }
}

void LabView::looked(std::span<const lab::CellStatus> cells) {
  for (auto& [cell, place] : places_) {
    if (place.first_points == 0) place.first_points = std::max<std::size_t>(cells[cell].points.size(), 1);
  }
  if (style_.quiet) return;
  if (!moving_) {
    plain_lines(cells);
    return;
  }
  const Clock::time_point now = Clock::now();
  if (now < next_) return;
  next_ = now + kLabRedrawTime;
  const std::string drawn = picture(cells);
  clear();
  put(style_.stream, drawn);
  drawn_lines_ = static_cast<std::size_t>(std::count(drawn.begin(), drawn.end(), '\n'));
}

void LabView::plain_lines(std::span<const lab::CellStatus> cells) {
  for (auto& [cell, place] : places_) {
    if (cells[cell].state != lab::CellState::running || cells[cell].points.empty()) continue;
    const std::int64_t steps = suite_.arms()[suite_.cells()[cell].arm].settings.steps;
    const std::int64_t step = cells[cell].points.back().step;
    const std::int64_t every = std::max<std::int64_t>(steps / kLabPlainLines, 1);
    if (place.next_line == 0) place.next_line = (step / every + 1) * every;
    if (step < place.next_line) continue;
    place.next_line = (step / every + 1) * every;
    print(running_line(cell, cells[cell]));
  }
}

std::string LabView::running_line(std::size_t cell, const lab::CellStatus& status) const {
  const lab::PlannedCell& planned = suite_.cells()[cell];
  const std::int64_t steps = suite_.arms()[planned.arm].settings.steps;
  if (status.points.empty()) return planned.name + ": begins";
  const lab::ProgressPoint& last = status.points.back();
  const Place& place = places_.at(cell);
  const double seconds = std::chrono::duration<double>(Clock::now() - place.started).count();
  const auto done = static_cast<double>(std::max<std::size_t>(status.points.size(), place.first_points + 1) -
                                        std::min(place.first_points, status.points.size()));
  const double left = seconds / done * static_cast<double>(steps - last.step);
  const std::string head = moving_ ? cell_bar(last.step, steps) + " " + planned.name : planned.name + ":";
  return fmt::format("{}  step {}/{}  loss {:.3f}  {} in recovery  {} left", head, last.step, steps,
                     curve_of(status).back().second, last.recovered, cell_duration_text(left));
}

std::string LabView::curves(std::span<const lab::CellStatus> cells, std::size_t columns) const {
  std::vector<CurvePanel> panels(suite_.arms().size());
  CurveStyle style{.columns = columns, .rows = kCurveRows, .last_step = 1};
  for (std::size_t arm = 0; arm < panels.size(); ++arm) {
    panels[arm].title = suite_.arms()[arm].arm.label;
    style.last_step = std::max(style.last_step, suite_.arms()[arm].settings.steps);
  }
  for (std::size_t cell = 0; cell < cells.size(); ++cell) {
    if (!cells[cell].points.empty()) panels[suite_.cells()[cell].arm].curves.push_back(curve_of(cells[cell]));
  }
  if (panels.size() > kMostPanels) panels.resize(kMostPanels);
  return draw_panels(panels, style);
}

std::string LabView::picture(std::span<const lab::CellStatus> cells) const {
  const HeatMapStyle terminal = style_for(style_.stream);
  std::string text;
  const auto count = [&](lab::CellState state) {
    return std::count_if(cells.begin(), cells.end(), [&](const auto& cell) { return cell.state == state; });
  };
  const auto ended = count(lab::CellState::finished) + count(lab::CellState::failed);
  text += fmt::format("{} of {} done\n", ended, counted(cells.size(), "cell"));
  for (std::size_t cell = 0; cell < cells.size(); ++cell) {
    if (cells[cell].state == lab::CellState::running) {
      text += cut_to(running_line(cell, cells[cell]), terminal.columns) + "\n";
    }
  }
  // What is taller than the terminal could not be drawn over.
  std::string above = curves(cells, terminal.columns);
  const auto lines = std::count(above.begin(), above.end(), '\n') + std::count(text.begin(), text.end(), '\n');
  return static_cast<std::size_t>(lines) < terminal.unit_rows + kLinesBesideUnits ? above + text : text;
}

void LabView::finish(std::span<const lab::CellStatus> cells) {
  clear();
  if (moving_) put(style_.stream, curves(cells, style_for(style_.stream).columns));
}

}  // namespace gnmr::app

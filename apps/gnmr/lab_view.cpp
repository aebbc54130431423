// SPDX-License-Identifier: Apache-2.0
#include "gnmr/lab_view.h"

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <cmath>

#include "gnmr/core/message_text.h"
#include "gnmr/lab_table.h"
#include "gnmr/live_view.h"
#include "gnmr/messages.h"

namespace gnmr::app {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kLabRedrawTime{250};
constexpr std::int64_t kLabPlainLines = 5;  // of a cell, where nothing can move
constexpr std::size_t kCellBarWidth = 16;
constexpr double kLabSmoothing = 0.9;

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

/// The last loss with the noise of single steps taken out: a running mean that forgets. One that is not finite stays.
double smoothed_loss(const std::vector<lab::ProgressPoint>& points) {
  if (!std::isfinite(points.back().loss)) return points.back().loss;
  double mean = 0;
  double weight = 0;
  for (const lab::ProgressPoint& point : points) {
    if (!std::isfinite(point.loss)) continue;
    mean = kLabSmoothing * mean + (1 - kLabSmoothing) * point.loss;
    weight = kLabSmoothing * weight + (1 - kLabSmoothing);
  }
  return mean / weight;
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
  if (stops > 0 && !stop_is_shown_) {
    stop_is_shown_ = true;
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
  if (status.points.empty()) return planned.name + ": begins";
  const lab::ProgressPoint& last = status.points.back();
  // Batches that came again (lag 1) are steps more.
  const std::int64_t steps = suite_.arms()[planned.arm].settings.steps + last.step - last.newest_batch;
  const Place& place = places_.at(cell);
  const double seconds = std::chrono::duration<double>(Clock::now() - place.started).count();
  const auto done = static_cast<double>(std::max<std::size_t>(status.points.size(), place.first_points + 1) -
                                        std::min(place.first_points, status.points.size()));
  const double left = seconds / done * static_cast<double>(steps - last.step);
  const std::string head =
      moving_ ? progress_bar(last.step, steps, kCellBarWidth) + " " + planned.name : planned.name + ":";
  return fmt::format("{}  step {}/{}  loss {:.3f}  {} in recovery  {} left", head, last.step, steps,
                     smoothed_loss(status.points), last.recovered, clock_text(left));
}

std::string LabView::picture(std::span<const lab::CellStatus> cells) const {
  const std::size_t columns = style_for(style_.stream).columns;
  std::string text;
  const auto count = [&](lab::CellState state) {
    return std::count_if(cells.begin(), cells.end(), [&](const auto& cell) { return cell.state == state; });
  };
  const auto ended = count(lab::CellState::finished) + count(lab::CellState::failed);
  text += fmt::format("{} of {} done\n", ended, counted(cells.size(), "cell"));
  for (std::size_t cell = 0; cell < cells.size(); ++cell) {
    if (cells[cell].state == lab::CellState::running) {
      text += cut_to(running_line(cell, cells[cell]), columns) + "\n";
    }
  }
  return text;
}

}  // namespace gnmr::app

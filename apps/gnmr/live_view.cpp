// SPDX-License-Identifier: Apache-2.0
#include "gnmr/live_view.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string_view>
#include <thread>
#include <utility>

#include "gnmr/core/message_text.h"
#include "gnmr/messages.h"

namespace gnmr::app {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kFrameTime{50};
constexpr std::chrono::milliseconds kProgressTime{200};
constexpr std::chrono::milliseconds kSilentTime{500};
constexpr std::size_t kLinesBelowUnits = 10;  // budget, axis, legend, and a line for the prompt
constexpr std::size_t kMostColumns = 160;
constexpr std::uint64_t kBytesBetweenLooks = std::uint64_t{1} << 18U;

}  // namespace

bool is_terminal(std::FILE* stream) {
  const char* const term = std::getenv("TERM");
  return ::isatty(::fileno(stream)) == 1 && term != nullptr && std::string_view(term) != "dumb";
}

std::string progress_bar(std::int64_t step, std::int64_t steps, std::size_t width) {
  const auto full = width * static_cast<std::size_t>(step) / static_cast<std::size_t>(std::max<std::int64_t>(steps, 1));
  std::string text;
  for (std::size_t cell = 0; cell < width; ++cell) text += cell < full ? "█" : "░";
  return text;
}

std::string clock_text(double seconds) {
  const auto whole = static_cast<std::int64_t>(std::lround(std::max(seconds, 0.0)));
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{}:{:02} min", whole / 60, whole % 60);
  return fmt::format("{}:{:02} h", whole / 3600, whole % 3600 / 60);
}

HeatMapStyle style_for(std::FILE* stream) {
  HeatMapStyle style{.columns = 110, .unit_rows = 40, .color = false};
  if (!is_terminal(stream)) return style;
  winsize size{};
  if (::ioctl(::fileno(stream), TIOCGWINSZ, &size) == 0 && size.ws_col > 0 && size.ws_row > 0) {
    style.columns = std::min<std::size_t>(size.ws_col, kMostColumns);
    style.unit_rows = size.ws_row > kLinesBelowUnits ? size.ws_row - kLinesBelowUnits : 1;
  }
  style.color = std::getenv("NO_COLOR") == nullptr;
  return style;
}

ProgressLine::ProgressLine(std::FILE* stream, bool wanted)
    : stream_(stream), wanted_(wanted && is_terminal(stream)), start_(Clock::now()), next_(start_ + kSilentTime) {}

void ProgressLine::update(std::uint64_t bytes_read, std::uint64_t bytes_total) {
  // The clock is read once in a while only. A file that is read twice starts again at its first byte.
  if (!wanted_ || (bytes_read >= last_bytes_ && bytes_read < last_bytes_ + kBytesBetweenLooks)) return;
  if (bytes_read < last_bytes_) start_ = Clock::now();
  last_bytes_ = bytes_read;
  const Clock::time_point now = Clock::now();
  if (now < next_) return;
  next_ = now + kProgressTime;
  const double seconds = std::chrono::duration<double>(now - start_).count();
  const double megabytes = static_cast<double>(bytes_read) / 1e6;
  const std::string done = steps_ == 0 ? "reading ahead" : counted(steps_, "step");
  std::string line = fmt::format("{}, {:.0f} MB, {:.0f} MB/s", done, megabytes, megabytes / seconds);
  if (bytes_total > 0) {
    const double share = static_cast<double>(bytes_read) / static_cast<double>(bytes_total);
    const double left = share > 0 ? seconds * (1 - share) / share : 0;
    line = fmt::format("{:3.0f}%  {}, {:.0f} s left", 100 * share, line, left);
  }
  put(stream_, "\r\x1b[K" + line);
  drawn_ = true;
}

void ProgressLine::clear() {
  if (!drawn_) return;
  put(stream_, "\r\x1b[K");
  drawn_ = false;
}

LiveHeatMap::LiveHeatMap(const Controller& controller, std::FILE* stream, double steps_per_second)
    : stream_(stream),
      moving_(is_terminal(stream) && style_for(stream).columns >= HeatMap::kFewestColumns),
      map_(controller, style_for(stream)),
      step_time_(steps_per_second > 0 && moving_ ? 1 / steps_per_second : 0),
      next_step_(Clock::now()),
      next_frame_(Clock::now()) {}

void LiveHeatMap::add(const Controller& controller, const Decision& decision) {
  map_.add(controller, decision);
  if (!moving_) return;
  if (step_time_.count() > 0) {
    next_step_ += std::chrono::duration_cast<Clock::duration>(step_time_);
    std::this_thread::sleep_until(next_step_);
  }
  if (Clock::now() < next_frame_) return;
  redraw();
  next_frame_ = Clock::now() + kFrameTime;
}

void LiveHeatMap::finish() { redraw(); }

void LiveHeatMap::redraw() {
  std::string picture = map_.draw();
  if (moving_) {
    std::string cleared = drawn_ ? fmt::format("\x1b[{}A\r", map_.line_count()) : "";
    for (const char character : picture) {
      if (character == '\n') cleared += "\x1b[K";
      cleared += character;
    }
    picture = std::move(cleared);
  }
  put(stream_, picture);
  drawn_ = true;
}

}  // namespace gnmr::app

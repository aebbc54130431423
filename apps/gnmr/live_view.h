// SPDX-License-Identifier: Apache-2.0
// What a terminal shows while a replay runs: a line of progress, or the heat map as it grows.
//
// Goals: nothing but the final picture where the output is no terminal; at most twenty frames a second.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>

#include "gnmr/heat_map.h"

namespace gnmr::app {

/// The size of the terminal behind `stream`, or one that suits a file; colour only on a terminal and without NO_COLOR.
HeatMapStyle style_for(std::FILE* stream);

/// Whether `stream` is a terminal that can move its cursor.
bool is_terminal(std::FILE* stream);

/// A bar of `width` characters, filled as far as `step` is of `steps`.
std::string progress_bar(std::int64_t step, std::int64_t steps, std::size_t width);

/// A time such as `12 s`, `3:20 min` or `2:05 h`.
std::string clock_text(double seconds);

/// One line that says how far a long job is; silent in the first half second, and where there is no terminal.
class ProgressLine {
 public:
  ProgressLine(std::FILE* stream, bool wanted);
  ~ProgressLine() { clear(); }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  /// How many steps are done; until there is one, the file is being read ahead.
  void set_steps(std::uint64_t steps) { steps_ = steps; }

  /// Draws, if it is time to. `bytes_total` 0: not known.
  void update(std::uint64_t bytes_read, std::uint64_t bytes_total);

  /// Takes the line away.
  void clear();

 private:
  std::FILE* stream_;
  bool wanted_;
  bool drawn_ = false;
  std::uint64_t steps_ = 0;
  std::uint64_t last_bytes_ = 0;  // when the clock was last looked at
  std::chrono::steady_clock::time_point start_;
  std::chrono::steady_clock::time_point next_;
};

/// Draws a heat map over and over in the same place.
class LiveHeatMap {
 public:
  /// `steps_per_second` 0: as fast as it comes.
  LiveHeatMap(const Controller& controller, std::FILE* stream, double steps_per_second);

  /// Adds a step, waits for its time, and draws where a frame is due.
  void add(const Controller& controller, const Decision& decision);

  /// Draws the last picture.
  void finish();

 private:
  void redraw();

  std::FILE* stream_;
  bool moving_;
  HeatMap map_;
  bool drawn_ = false;
  std::chrono::duration<double> step_time_;
  std::chrono::steady_clock::time_point next_step_;
  std::chrono::steady_clock::time_point next_frame_;
};

}  // namespace gnmr::app

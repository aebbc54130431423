// SPDX-License-Identifier: Apache-2.0
// What a terminal, or a log, shows of a training run.
//
// On a terminal one line moves: how far, loss, tokens a second, units in recovery, time left. Elsewhere plain lines
// come, a few dozen in a run.
#pragma once

#include <chrono>
#include <cstdio>
#include <optional>
#include <string>

#include "gnmr/run/control_signals.h"
#include "gnmr/run/engine.h"

namespace gnmr::app {

/// How much is shown.
struct TrainViewStyle {
  std::FILE* stream = stderr;
  bool quiet = false;
};

/// Shows a run, and hands on what signals ask for.
class TrainView : public run::TrainObserver {
 public:
  explicit TrainView(const TrainViewStyle& style);
  ~TrainView() override;

  void started(const run::TrainStart& start) override;
  void stepped(const run::TrainLine& line) override;
  void evaluated(const run::EvalLine& line) override;
  void noted(const std::string& text) override;
  bool stop_wanted() override { return signals_.stop_requested(); }
  std::optional<Mode> mode_wanted() override { return signals_.take_mode(); }

  /// The last lines: how it ended and what to do next.
  void finished(const run::TrainOutcome& outcome);

 private:
  void print(const std::string& line);
  void print_control(const run::ControlCounts& counts, const run::StepSeconds& seconds);
  void draw(const run::TrainLine& line, double seconds);
  void clear();

  TrainViewStyle style_;
  bool moving_;
  bool drawn_ = false;
  run::ControlSignals signals_;
  run::TrainStart start_;
  std::chrono::steady_clock::time_point begin_;
  std::chrono::steady_clock::time_point next_;
  std::int64_t steps_seen_ = 0;
  std::int64_t newest_batch_ = 0;
  std::int64_t tokens_ = 0;
  double recent_loss_ = 0;
};

}  // namespace gnmr::app

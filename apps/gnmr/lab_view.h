// SPDX-License-Identifier: Apache-2.0
// What a terminal, or a log, shows of a suite while it runs.
//
// On a terminal lines are redrawn in their place: how many cells are done, then one per running cell.
// Elsewhere plain lines come: when a cell begins, a few times on its way, and when it ends.
#pragma once

#include <chrono>
#include <cstdio>
#include <map>
#include <span>
#include <string>

#include "gnmr/lab/cell_runner.h"
#include "gnmr/lab/suite.h"

namespace gnmr::app {

/// How much is shown.
struct LabViewStyle {
  std::FILE* stream = stderr;
  bool quiet = false;
};

/// Shows a suite, and hands on that the user wants to stop (SIGINT, SIGTERM). One at a time in a process.
class LabView : public lab::SuiteObserver {
 public:
  LabView(const lab::Suite& suite, const LabViewStyle& style);
  ~LabView() override;
  LabView(const LabView&) = delete;
  LabView& operator=(const LabView&) = delete;

  void started(std::size_t cell, bool resumed) override;
  void ended(std::size_t cell, const lab::CellStatus& status) override;
  void looked(std::span<const lab::CellStatus> cells) override;
  int stops_wanted() override;

 private:
  struct Place {
    std::chrono::steady_clock::time_point started;
    std::size_t first_points = 0;  // steps that were done before it went on
    std::int64_t next_line = 0;    // step from which a plain line is due
  };

  void print(const std::string& line);
  void clear();
  std::string running_line(std::size_t cell, const lab::CellStatus& status) const;
  std::string picture(std::span<const lab::CellStatus> cells) const;
  void plain_lines(std::span<const lab::CellStatus> cells);

  const lab::Suite& suite_;
  LabViewStyle style_;
  bool moving_;
  std::size_t drawn_lines_ = 0;
  bool stop_is_shown_ = false;
  std::map<std::size_t, Place> places_;  // of the cells that were started
  std::chrono::steady_clock::time_point next_;
};

}  // namespace gnmr::app

// SPDX-License-Identifier: Apache-2.0
// The errors of all units and sites that the patrol measured, written every so many steps.
//
// Goals: once per step, of its first run; where rows are rarer than steps, each error that was measured last since the
// row before; no row without an error. Non-goals: the file's layout (gnmr/io/signals_file.h), errors of trials, which
// the journal has; rows begun when a run stops (a resumed run begins afresh).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "gnmr/io/signals_file.h"
#include "gnmr/run/outcome_listener.h"

namespace gnmr::run {

/// The errors file of one run.
class ErrorsLog : public OutcomeListener {
 public:
  /// Opens the file; `every`: steps from one row to the next, at least 1.
  ErrorsLog(const io::SignalsSettings& settings, std::int64_t every)
      : every_(every), writer_(settings), row_(settings.unit_count * settings.sites, kNone) {}

  void reported(const ReportedRun& run) override {
    if (run.is_first && run.ran == PassKind::step)
      take(run.notes.errors.empty() ? run.report.errors : run.notes.errors);
    if (!run.is_first || !has_any_ || run.plan.step % every_ != 0) return;
    writer_.write(run.plan.step, row_);
    std::fill(row_.begin(), row_.end(), kNone);
    has_any_ = false;
  }

  io::SignalsWriter& writer() { return writer_; }
  const io::SignalsWriter& writer() const { return writer_; }

 private:
  static constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

  void take(std::span<const double> errors) {
    const std::size_t count = std::min(errors.size(), row_.size());
    for (std::size_t i = 0; i < count; ++i) {
      if (std::isnan(errors[i])) continue;
      row_[i] = errors[i];
      has_any_ = true;
    }
  }

  std::int64_t every_;
  io::SignalsWriter writer_;
  std::vector<double> row_;  // units x sites
  bool has_any_ = false;
};

}  // namespace gnmr::run

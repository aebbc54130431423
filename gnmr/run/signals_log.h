// SPDX-License-Identifier: Apache-2.0
// The ratios of all units, written every so many steps.
//
// Goals: once per step, of its first run. Non-goals: the file's layout (gnmr/io/signals_file.h).
#pragma once

#include <cstdint>

#include "gnmr/io/signals_file.h"
#include "gnmr/run/outcome_listener.h"

namespace gnmr::run {

/// The signals file of one run.
class SignalsLog : public OutcomeListener {
 public:
  /// Opens the file; `every`: steps from one row to the next, at least 1.
  SignalsLog(const io::SignalsSettings& settings, std::int64_t every) : every_(every), writer_(settings) {}

  void reported(const ReportedRun& run) override {
    if (run.is_first && run.plan.step % every_ == 0) writer_.write(run.plan.step, run.controller);
  }

  io::SignalsWriter& writer() { return writer_; }
  const io::SignalsWriter& writer() const { return writer_; }

 private:
  std::int64_t every_;
  io::SignalsWriter writer_;
};

}  // namespace gnmr::run

// SPDX-License-Identifier: Apache-2.0
// What the journal of a run says of its steps, its reruns and its modes.
//
// Goals: a line of a mode stands after those of the steps before it, also where steps are reported late. Non-goals: the
// text of lines and the file (gnmr/io/journal_writer.h).
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "gnmr/io/journal_writer.h"
#include "gnmr/run/outcome_listener.h"
#include "gnmr/run/rerun_reasons.h"

namespace gnmr::run {

/// The journal of one run.
class RunJournal : public OutcomeListener {
 public:
  /// Opens the file and writes the header. `sites` names the backend's sites; controller and reasons must outlive it.
  RunJournal(const io::JournalSettings& settings, const Controller& controller, std::vector<std::string> sites,
             const RerunReasons& reasons);

  void reported(const ReportedRun& run) override;

  /// A mode that holds from a step on.
  void set_mode(const io::JournalMode& mode, std::int64_t first_step);

  /// A remark.
  void note(const std::string& text) { writer_.note(text); }

  std::uint64_t dropped() const { return writer_.dropped(); }
  bool flush(std::chrono::milliseconds longest) { return writer_.flush(longest); }

  /// Ends the file; whether all was written.
  bool close();

 private:
  void write_rerun(const ReportedRun& run);
  void write_late_modes();

  const Controller& controller_;
  std::vector<std::string> sites_;
  const RerunReasons& reasons_;
  io::JournalWriter writer_;
  std::vector<io::JournalMode> late_modes_;  // written after the step before them
};

}  // namespace gnmr::run

// SPDX-License-Identifier: Apache-2.0
// Writes the journal of a run.
//
//   gnmr::io::JournalWriter journal({.path = "run.jsonl"});
//   journal.header(controller.units(), controller.options(), gnmr::io::utc_text(std::chrono::system_clock::now()));
//   const gnmr::Outcome& outcome = controller.report({.step = step, .norms = norms});
//   journal.step(controller, outcome.alarm, outcome.decision, {.loss = loss});
//
// In training (`in_background`, the default) no member but the constructor throws or waits for the disk: lines that
// have no place are dropped and counted, and a `note` counts them once writing works again. A replay writes
// directly: a full disk is an `Error`.
//
// Goals: a step goes on whatever the disk does; the lines of one step are written all or not at all.
// Non-goals: reading, rotating, compressing; two writers of one journal. A writer belongs to one thread at a time.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gnmr/core/controller.h"
#include "gnmr/io/journal.h"
#include "gnmr/io/record_sink.h"

namespace gnmr::io {

/// Where and how to write.
struct JournalSettings {
  std::string path;  // `-`: standard output, only directly
  ExistingFile existing = ExistingFile::refuse;
  std::int64_t resume_step = 0;  // the next step, for the line that a resumed journal begins with
  bool in_background = true;
  std::size_t queue_bytes = std::size_t{16} << 20U;  // of lines that wait for the disk
};

/// What only the training loop knows of a step.
struct StepContext {
  std::optional<double> loss = {};
  std::optional<double> clip_coefficient = {};
  std::string_view alarm = {};  // as JournalStep has it
  bool capped = false;          // likewise
  bool has_signals = true;      // false: its norms were dropped, and its events have no signals
};

/// Writes the lines of a journal.
class JournalWriter {
 public:
  /// Opens the file; an `Error` where that fails, or where it is there already and is not to be resumed or replaced.
  explicit JournalWriter(const JournalSettings& settings);

  /// Whether the journal had lines before, from an earlier run.
  bool resumed() const { return resumed_; }

  /// What is watched, and how; a resumed run writes it again, since both may have changed. `started` may be empty;
  /// `sites` names the sites of errors, empty: there are none.
  void header(const std::vector<Unit>& units, const Options& options, std::string_view started,
              std::span<const std::string> sites = {});

  /// One step and what happened in it. To be called after its report and before the next one.
  void step(const Controller& controller, const Alarm& alarm, const Decision& decision,
            const StepContext& context = {});

  /// A step that was run again; to be called before `step`.
  void trial(const JournalTrial& trial);

  /// From here on decisions are carried out, only written, or everything runs high.
  void mode(const JournalMode& mode);

  /// A remark.
  void note(std::string_view text);

  /// Waits until all lines are with the operating system, at most so long; whether they are.
  bool flush(std::chrono::milliseconds longest = std::chrono::seconds(2));

  /// `flush`, and the end; lines that come later are lost. The destructor closes too, but cannot report an error.
  bool close(std::chrono::milliseconds longest = std::chrono::seconds(2));

  /// Lines that were lost so far.
  std::uint64_t dropped() const { return sink_->dropped() + unformatted_; }

 private:
  template <typename Format>
  void write(Format format);
  void append_risks(const Controller& controller, const Alarm& alarm);
  void append_denied(const Controller& controller, const Decision& decision);
  std::span<const std::pair<double, UnitIndex>> most_severe(const Controller& controller,
                                                            std::span<const UnitIndex> units, std::size_t most);
  void append_events(const Controller& controller, std::int64_t step, JournalEventKind kind,
                     std::span<const UnitIndex> units);

  std::unique_ptr<RecordSink> sink_;
  bool in_background_;
  bool resumed_ = false;
  std::string lines_;                                     // reused
  std::vector<std::pair<double, UnitIndex>> severities_;  // reused
  bool has_signals_ = true;                               // of the step that is written
  std::uint64_t unformatted_ = 0;                         // lost for want of memory
};

/// A time as `2026-01-31T12:34:56Z`.
std::string utc_text(std::chrono::system_clock::time_point time);

}  // namespace gnmr::io

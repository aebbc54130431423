// SPDX-License-Identifier: Apache-2.0
// The controller in a training loop: who runs high in the next step, and why.
//
// Puts together what may send a unit to high precision: the controller's decisions (with their lag), the user's
// switchboard, random units as a rival, the kill switch; and writes journal and signals.
//
//   Supervisor supervisor(units, {...}, &files);
//   for each step: units run as supervisor.high(step) says; then supervisor.observe({...norms...}, context)
//
// Goals: one place that knows the modes; a step never fails here: what the disk cannot take is dropped and counted.
// Non-goals: norms, torch, files of the run other than journal and signals. It belongs to one thread at a time.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gnmr/core/controller.h"
#include "gnmr/io/journal_writer.h"
#include "gnmr/io/signals_file.h"
#include "gnmr/io/state_file.h"
#include "gnmr/run/switch_rule.h"

namespace gnmr::run {

/// What the supervisor is asked to do.
struct SupervisorSettings {
  Options options = {};
  bool switches = true;          // false: decisions are written, nothing is switched (watch)
  std::int64_t watch_steps = 0;  // only watch in the first so many steps
  std::vector<SwitchRule> rules = {};
  std::optional<double> random_share = {};  // random units instead of the controller's
  std::uint64_t seed = 0;                   // of those
};

/// Where it writes; empty paths: nowhere.
struct SupervisorFiles {
  std::string journal = {};
  std::string signals = {};
  std::int64_t signals_every = 1;
  io::ExistingFile existing = io::ExistingFile::refuse;
  std::int64_t next_step = 1;  // of a resumed run
};

/// One observation of a run.
class Supervisor {
 public:
  /// `units` are as the controller wants them; those that a rule names should be `forced`.
  Supervisor(std::vector<Unit> units, const SupervisorSettings& settings, const SupervisorFiles& files);

  /// The units that run high in a step, ascending. Valid until the next call of a member.
  std::span<const UnitIndex> high(std::int64_t step);

  /// Of these, the ones in recovery: not forced, not by the kill switch.
  std::int64_t recovered_count() const { return recovered_count_; }

  /// Takes the norms of a step and decides. What the loop knows besides goes to the journal.
  const Decision& observe(const Observation& observation, const io::StepContext& context);

  /// What the last observation found.
  const Alarm& alarm() const { return alarm_; }

  /// The kill switch: from the next `high` on. Told to the journal once.
  void set_mode(io::JournalModeKind mode, const std::string& why);
  io::JournalModeKind mode() const { return mode_; }

  /// A remark for the journal.
  void note(const std::string& text);

  /// The controller's state with decisions that are still on their way.
  std::string save() const;

  /// Takes it over; the report says what changed.
  RestoreReport restore(const std::string& state_bytes);

  const Controller& controller() const { return controller_; }

  /// Journal lines and signal rows that the disk did not take.
  std::uint64_t dropped() const;

  /// Waits until all that was told is with the operating system, for each file at most so long; whether it is.
  bool flush(std::chrono::milliseconds longest = std::chrono::seconds(2));

  /// Ends the files; whether all was written.
  bool close();

 private:
  void collect_recovered(std::int64_t step);
  void tell_first_steps(std::int64_t step);

  SupervisorSettings settings_;
  Controller controller_;
  std::optional<io::JournalWriter> journal_;
  std::optional<io::SignalsWriter> signals_;
  std::int64_t signals_every_ = 1;
  io::JournalModeKind mode_ = io::JournalModeKind::armed;
  std::deque<std::vector<UnitIndex>>
      in_flight_;                      // decisions in the order of their steps; the first is for the next step
  std::vector<UnitIndex> free_units_;  // that are not forced
  Alarm alarm_;
  std::vector<UnitIndex> high_;       // reused
  std::vector<UnitIndex> recovered_;  // reused
  std::int64_t recovered_count_ = 0;
};

}  // namespace gnmr::run

// SPDX-License-Identifier: Apache-2.0
// The controller in a training loop: its plans and outcomes, with the switchboard, another chooser of units, the kill
// switch and who listens around them.
//
//   Supervisor supervisor(units, {...}, files);
//   each step as in gnmr/core/controller.h: begin(step) is the plan, with the units that rules keep high or low;
//   report(numbers, notes) is the outcome, which every listener has got: journal, files of signals and errors,
//   self-audit.
//
// Goals: one place that knows the modes; a step never fails here: what the disk cannot take is dropped and counted.
// Non-goals: norms, torch, files of the run other than journal, signals and errors. It belongs to one thread at a time.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gnmr/core/controller.h"
#include "gnmr/io/state_file.h"
#include "gnmr/run/decision_checksum.h"
#include "gnmr/run/errors_log.h"
#include "gnmr/run/outcome_listener.h"
#include "gnmr/run/rerun_reasons.h"
#include "gnmr/run/run_journal.h"
#include "gnmr/run/self_audit.h"
#include "gnmr/run/signals_log.h"
#include "gnmr/run/switch_rule.h"

namespace gnmr::run {

/// The units in recovery in a step instead of the controller's, ascending.
using ChooseUnits = std::function<std::vector<UnitIndex>(std::int64_t step)>;

/// What the supervisor is asked to do.
struct SupervisorSettings {
  Options options = {};
  bool switches = true;          // false: decisions are written, nothing is switched (watch)
  std::int64_t watch_steps = 0;  // only watch in the first so many steps
  std::vector<SwitchRule> rules = {};
  Backend backend = {};                 // what can be measured and run again
  std::vector<std::string> sites = {};  // what the backend's sites are called
  std::int64_t disarm_after = 0;        // steps without any help, after which it only watches; 0: never
  ChooseUnits choose = {};              // none: the controller's decisions are carried out
};

/// Where it writes; empty paths: nowhere.
struct SupervisorFiles {
  std::string journal = {};
  std::string signals = {};
  std::string errors = {};         // for backends with sites
  std::int64_t signals_every = 1;  // for both
  io::ExistingFile existing = io::ExistingFile::refuse;
  std::int64_t next_step = 1;  // of a resumed run
};

/// One observation of a run.
class Supervisor {
 public:
  /// `units` are as the controller wants them; those that a rule names should be `forced`.
  Supervisor(std::vector<Unit> units, const SupervisorSettings& settings, const SupervisorFiles& files);
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  /// Whether steps are reported late: the option `lag` is 1.
  bool has_gate() const { return controller_.options().lag == 1; }

  /// As `Controller::begin`; the paths are those of rules, the other chooser and the kill switch too.
  const StepPlan& begin(std::int64_t step);

  /// The units that run high by decisions and rules in the step that has begun, ascending (a trial runs all high).
  std::span<const UnitIndex> high() const { return high_; }

  /// Of these, the ones that nobody but the controller switched; they run what their recipe recovers to.
  std::span<const UnitIndex> in_recovery() const { return in_recovery_; }

  /// Of these, the ones in recovery: not forced, not by the kill switch.
  std::int64_t recovered_count() const { return recovered_count_; }

  /// Of these, the ones in standing recovery by the last decision.
  std::int64_t standing_count() const { return standing_count_; }

  /// One more listener; it must outlive the steps.
  void add_listener(OutcomeListener& listener) { listeners_.push_back(&listener); }

  /// As `Controller::report`; the outcome has gone to all listeners.
  const Outcome& report(const StepReport& report, const RunNotes& notes);

  /// What was reported last.
  const Outcome& outcome() const { return outcome_; }

  /// What the norms of the last decision said; nothing where they were dropped.
  const Alarm& alarm() const { return alarm_; }

  /// The kill switch: from the next `begin` on. Goes to the journal once.
  void set_mode(Mode mode, const std::string& why);
  Mode mode() const { return mode_; }

  /// The switchboard: for the step that has begun and is not reported yet, `high` changes at once. A unit that was not
  /// `forced` from the beginning is still judged, and is in the budget while it is in recovery; its path is the rule's.
  void set_rules(std::vector<SwitchRule> rules);
  const std::vector<SwitchRule>& rules() const { return settings_.rules; }

  /// A remark for the journal.
  void note(const std::string& text);

  /// Of what the processes of a run must have in common before a report: the last decision, what is high, mode and
  /// rules.
  std::uint32_t checksum() const;

  /// The controller's state and plan.
  std::string save() const;

  /// Takes it over; the report says what changed.
  RestoreReport restore(const std::string& state_bytes);

  const Controller& controller() const { return controller_; }

  /// Whether the decisions of a step take effect: the mode is armed, and the first steps that are only watched are
  /// over.
  bool is_in_force(std::int64_t step) const {
    return mode_ == Mode::armed && !settings_.choose && step > settings_.watch_steps;
  }

  /// Journal lines and rows of signals and errors that the disk did not take.
  std::uint64_t dropped() const;

  /// Waits until all lines and rows are with the operating system, for each file at most so long; whether they are.
  bool flush(std::chrono::milliseconds longest = std::chrono::seconds(2));

  /// Ends the files; whether all was written.
  bool close();

 private:
  void collect_high();
  void note_first_steps(std::int64_t step);

  SupervisorSettings settings_;
  Controller controller_;
  LastDecision last_decision_;  // none after `restore`
  RerunReasons reasons_;
  SelfAudit audit_;
  std::optional<RunJournal> journal_;
  std::optional<SignalsLog> signals_;
  std::optional<ErrorsLog> errors_;
  std::vector<OutcomeListener*> listeners_;  // these, then those that were added
  Mode mode_ = Mode::armed;
  StepPlan plan_;                    // of the step that has begun last
  std::vector<std::uint8_t> paths_;  // per unit, where rules or another chooser change the plan's
  std::vector<UnitIndex> high_;
  std::vector<UnitIndex> in_recovery_;
  std::vector<UnitIndex> recovered_;  // by the plan, or instead
  std::int64_t recovered_count_ = 0;
  std::int64_t standing_count_ = 0;
  Outcome outcome_;
  Alarm alarm_;
};

}  // namespace gnmr::run

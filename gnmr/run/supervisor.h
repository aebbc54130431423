// SPDX-License-Identifier: Apache-2.0
// The controller in a training loop: who runs high in the next step, and why.
//
// Puts together what may send a unit to high precision: the controller's decisions (with their lag), the user's
// switchboard, random units as a rival, the kill switch; and writes journal and signals.
//
//   Supervisor supervisor(units, {...}, &files);
//   for each step: supervisor.begin(step) says which batch it takes, supervisor.high(step) which units run high; then
//   supervisor.hear({...norms...}, errors) says what is to be done before the update: `decide`, or run the step again
//   and `conclude`
//   with a gate (lag 1): begin(step) says too how the batch runs and what its gate may do, and the step is settled, in
//   one call, when its numbers have come: while the next one runs
//
// Goals: one place that knows the modes; a step never fails here: what the disk cannot take is dropped and counted.
// Non-goals: norms, torch, files of the run other than journal and signals. It belongs to one thread at a time.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gnmr/core/judge_gated.h"
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
  JudgeSettings backend = {};               // what can be measured and run again
  std::vector<std::string> places = {};     // what the backend's places are called
  std::int64_t disarm_after = 0;            // steps without any help, after which it only watches; 0: never

  /// The units in recovery in a step instead of the controller's, ascending; none: the controller's.
  std::function<std::vector<UnitIndex>(std::int64_t)> chosen = {};
};

/// What a step that ran again came to, for the journal.
struct RerunContext {
  std::optional<double> loss_before = {};  // of the alarmed run; none where there was no other
  double loss = 0;
  std::optional<double> norm_before = {};  // of all gradients
  double norm = 0;
  std::optional<double> distance = {};  // of the two gradients at least, relative
  double seconds = 0;
  bool applied = true;
  std::optional<std::int64_t> rank = {};  // where the two differ most
};

/// A step of a run with a gate, as it came out.
struct SettledStep {
  Observation observation = {};
  std::span<const double> errors = {};     // of the patrol, or of the trial where it was one
  bool held = false;                       // the gate kept its update back
  std::optional<RerunContext> rerun = {};  // of a trial or a replay
  io::StepContext context = {};
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
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  /// Whether steps have a gate and are settled late: the option `lag` is 1.
  bool has_gate() const { return controller().options().lag == 1; }

  /// The step begins: which batch it takes, and with a gate how that runs and what may close it. Valid until the next
  /// call.
  const StepPlan& begin(std::int64_t step);

  /// With a gate: decides now what a step will be. `begin` does it otherwise; but the step after must be planned before
  /// a step is settled.
  void plan(std::int64_t step);

  /// What the gate of the step that was planned last is to know, one a unit: 1 it is free, 2 a norm of 0 counts as no
  /// sample (gnmr/kernels/unit_step.h). Valid until the next `plan`.
  std::span<const std::uint8_t> gate_flags() const { return planned_flags_; }

  /// The trial that has begun last ran as a plain step instead, for want of memory.
  void trial_failed() { steps_.trial_failed(); }

  /// With a gate: hears and decides the oldest step that has begun and is not decided. `action` of the ruling says of a
  /// held one whether its batch comes again.
  const Ruling& settle(const SettledStep& settled);

  /// The units that run high in a step, ascending. Valid until the next call of a member.
  std::span<const UnitIndex> high(std::int64_t step);

  /// Of these, the ones in recovery: not forced, not by the kill switch.
  std::int64_t recovered_count() const { return recovered_count_; }

  /// Takes the norms of a step, and errors of low paths where a patrol measured some: what is to be done before the
  /// update. Where nothing is switched, nothing is to be done. `may_rerun` false: this step cannot be run again, and no
  /// rerun is asked for. Valid until the next call.
  const Hearing& hear(const Observation& observation, std::span<const double> patrol = {}, bool may_rerun = true);

  /// Decides without a trial, or where one failed: what is done with the update is in the ruling, too. What the loop
  /// knows of the step goes to the journal.
  const Ruling& decide(const io::StepContext& context);

  /// Decides after a trial.
  const Ruling& conclude(const Observation& rerun, std::span<const double> errors, const RerunContext& rerun_context,
                         const io::StepContext& context);

  /// Tells the journal of a replay.
  void replayed(std::int64_t step, const RerunContext& context);

  /// `hear` and `decide`, whatever is to be done.
  const Decision& observe(const Observation& observation, const io::StepContext& context);

  /// What was found in the last step; views in it are no longer valid.
  const Hearing& hearing() const { return hearing_; }

  /// How the last step ended; units in it stood out by the errors of their low paths.
  const Ruling& ruling() const { return ruling_; }

  /// What the norms of the last step said.
  const Alarm& alarm() const { return judge_.alarm(); }

  /// The kill switch: from the next `high` on. Told to the journal once.
  void set_mode(io::JournalModeKind mode, const std::string& why);
  io::JournalModeKind mode() const { return mode_; }

  /// The switchboard from the next `high` on. A unit that was not `forced` from the beginning is still judged, and is
  /// in the budget while it is in recovery; which path it takes is the rule's word.
  void set_rules(std::vector<SwitchRule> rules) { settings_.rules = std::move(rules); }
  const std::vector<SwitchRule>& rules() const { return settings_.rules; }

  /// A remark for the journal.
  void note(const std::string& text);

  /// Of what the processes of a run must have in common before a step is heard: the last decision, what is high, mode
  /// and rules.
  std::uint32_t checksum() const;

  /// The controller's state with decisions that are still on their way.
  std::string save() const;

  /// Takes it over; the report says what changed.
  RestoreReport restore(const std::string& state_bytes);

  const Controller& controller() const { return judge_.controller(); }
  const Judge& judge() const { return judge_; }

  /// Whether what a step decides is carried out: the mode is armed, and the first steps that are only watched are over.
  bool is_in_force(std::int64_t step) const;

  /// Journal lines and signal rows that the disk did not take.
  std::uint64_t dropped() const;

  /// Waits until all that was told is with the operating system, for each file at most so long; whether it is.
  bool flush(std::chrono::milliseconds longest = std::chrono::seconds(2));

  /// Ends the files; whether all was written.
  bool close();

 private:
  void collect_recovered(std::int64_t step);
  void tell_first_steps(std::int64_t step);
  std::string alarm_text(const Hearing& hearing) const;
  void write_rerun(const RerunContext& context, const Ruling& ruling, const char* kind);
  void close_step(const Ruling& ruling, const io::StepContext& context);
  void audit(std::int64_t step, bool in_force, std::optional<bool> helped);
  void remember_why(const UndecidedStep& step);
  void tell_mode(const io::JournalMode& mode, std::int64_t first_step);
  void tell_late_modes();
  std::string gated_section() const;
  void restore_gated(const std::string& text);

  SupervisorSettings settings_;
  Judge judge_;
  std::optional<io::JournalWriter> journal_;
  std::optional<io::SignalsWriter> signals_;
  std::int64_t signals_every_ = 1;
  io::JournalModeKind mode_ = io::JournalModeKind::armed;
  std::deque<std::vector<UnitIndex>> in_flight_;  // without a gate: the last decision, for the next step
  std::vector<UnitIndex> free_units_;             // that are not forced
  Hearing hearing_;
  Ruling ruling_;
  std::uint32_t decision_checksum_ = 0;                // of the last step that was closed; 0 after `restore`
  std::string alarm_text_;                             // of a step that is to be run again
  std::deque<std::pair<std::int64_t, bool>> audited_;  // steps in which it acted, and whether that helped
  std::vector<UnitIndex> high_;                        // reused
  std::vector<UnitIndex> recovered_;                   // reused
  std::int64_t recovered_count_ = 0;

  GatedSteps steps_{judge_};
  StepPlan plan_;                                             // of the step that has begun last
  std::vector<UnitIndex> planned_recovered_;                  // in the step that was planned last
  std::optional<std::vector<UnitIndex>> restored_recovered_;  // likewise, of a state without a plan
  std::vector<std::uint8_t> planned_flags_;
  std::map<std::int64_t, std::string> whys_;  // by batch: why it is to be run as a trial or a replay
  std::string called_why_;                    // the same of a trial that has been called
  std::vector<io::JournalMode> late_modes_;   // told after the step before them
  std::int64_t disarm_step_ = 0;              // the first in which it only watches; 0: none
  std::string disarm_why_;
};

}  // namespace gnmr::run

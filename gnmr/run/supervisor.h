// SPDX-License-Identifier: Apache-2.0
// The controller in a training loop: who runs high in the next step, and why.
//
// Puts together what may send a unit to high precision: the controller's decisions (with their lag), the user's
// switchboard, random units as a rival, the kill switch; and writes journal and signals.
//
//   Supervisor supervisor(units, {...}, &files);
//   for each step: units run as supervisor.high(step) says; then supervisor.hear({...norms...}, errors) says what is to
//   be done before the update: `decide`, or run the step again and `conclude`
//
// Goals: one place that knows the modes; a step never fails here: what the disk cannot take is dropped and counted.
// Non-goals: norms, torch, files of the run other than journal and signals. It belongs to one thread at a time.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gnmr/core/judge.h"
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
  double loss_before = 0;
  double loss = 0;
  double norm_before = 0;  // of all gradients
  double norm = 0;
  double distance = 0;  // of the two gradients at least, relative
  double seconds = 0;
  bool applied = true;
  std::optional<std::int64_t> rank = {};  // where the two differ most
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

  /// Takes the norms of a step, and errors of low paths where a patrol measured some: what is to be done before the
  /// update. Where nothing is switched, nothing is to be done. Valid until the next call.
  const Hearing& hear(const Observation& observation, std::span<const double> patrol = {});

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

  /// How the last step ended; units in it stood out by the errors of their low paths.
  const Ruling& ruling() const { return ruling_; }

  /// What the norms of the last step said.
  const Alarm& alarm() const { return judge_.alarm(); }

  /// The kill switch: from the next `high` on. Told to the journal once.
  void set_mode(io::JournalModeKind mode, const std::string& why);
  io::JournalModeKind mode() const { return mode_; }

  /// A remark for the journal.
  void note(const std::string& text);

  /// The controller's state with decisions that are still on their way.
  std::string save() const;

  /// Takes it over; the report says what changed.
  RestoreReport restore(const std::string& state_bytes);

  const Controller& controller() const { return judge_.controller(); }
  const Judge& judge() const { return judge_; }

  /// Journal lines and signal rows that the disk did not take.
  std::uint64_t dropped() const;

  /// Waits until all that was told is with the operating system, for each file at most so long; whether it is.
  bool flush(std::chrono::milliseconds longest = std::chrono::seconds(2));

  /// Ends the files; whether all was written.
  bool close();

 private:
  void collect_recovered(std::int64_t step);
  void tell_first_steps(std::int64_t step);
  bool is_in_force(std::int64_t step) const;
  std::string alarm_text(const Hearing& hearing) const;
  void write_rerun(const RerunContext& context, const Ruling& ruling, const char* kind);
  void close_step(const Ruling& ruling, const io::StepContext& context);
  void audit(const Ruling& ruling, std::optional<bool> helped);

  SupervisorSettings settings_;
  Judge judge_;
  std::optional<io::JournalWriter> journal_;
  std::optional<io::SignalsWriter> signals_;
  std::int64_t signals_every_ = 1;
  io::JournalModeKind mode_ = io::JournalModeKind::armed;
  std::deque<std::vector<UnitIndex>>
      in_flight_;                      // decisions in the order of their steps; the first is for the next step
  std::vector<UnitIndex> free_units_;  // that are not forced
  Hearing hearing_;
  Ruling ruling_;
  std::string alarm_text_;                             // of a step that is to be run again
  std::deque<std::pair<std::int64_t, bool>> audited_;  // steps in which it acted, and whether that helped
  std::vector<UnitIndex> high_;                        // reused
  std::vector<UnitIndex> recovered_;                   // reused
  std::int64_t recovered_count_ = 0;
};

}  // namespace gnmr::run

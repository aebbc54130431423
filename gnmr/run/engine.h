// SPDX-License-Identifier: Apache-2.0
// The boundary between programs and the training engine, which is a library of its own because it needs torch.
//
// A program loads `libgnmr_engine` and asks for `gnmr_engine_open`; programs that only replay logs never load it.
//
// Goals: no torch in the interface; the engine reports, the program prints. Non-goals: an interface for others: program
// and engine are built together, and `kEngineInterface` makes sure of it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "gnmr/io/journal.h"
#include "gnmr/run/high_share.h"
#include "gnmr/run/metrics.h"
#include "gnmr/run/run_folder.h"
#include "gnmr/run/train_settings.h"

namespace gnmr::run {

/// Changes whenever something in this header does.
inline constexpr std::uint64_t kEngineInterface = 8;

/// What a run is about to do, for its first lines.
struct TrainStart {
  RunInfo info;
  std::string folder;
  std::string data;      // what it trains on, in words
  std::string coverage;  // what is watched, in words
  std::string control;   // what is compared beside a step and what a trial needs, in words; may be empty
  std::string engine;    // torch, device, threads
  std::int64_t first_step = 1;
  std::uint64_t injected_faults = 0;
};

/// What the controller found and did, in the steps of one process.
struct ControlCounts {
  std::uint64_t risks = 0;
  std::uint64_t admissions = 0;
  HighCounts high = {};         // unit-steps that were watched, and those in high precision
  std::uint64_t alarms = 0;     // steps
  std::uint64_t dismissed = 0;  // steps whose alarm a patrol answered
  std::uint64_t trials = 0;     // steps that were run again in high precision
  std::uint64_t replays = 0;    // steps that were run again with the new units
  std::uint64_t standing = 0;   // units in standing recovery after the last decision
  std::uint64_t held = 0;       // steps whose update a gate held (lag 1)
};

/// Where the time of the steps of one process went.
struct StepSeconds {
  double steps = 0;    // all of it
  double norms = 0;    // of these: the pass over the gradients, which clipping needs too
  double control = 0;  // of these: signals, decisions, switches, journal
  double reruns = 0;   // of these: trials and replays
};

/// How a run ended.
struct TrainOutcome {
  std::int64_t last_step = 0;
  bool finished = false;     // false: it was asked to stop
  std::string unsaved = {};  // what could not be saved and what that costs, in words; empty: all of it is on the disk
  std::optional<double> loss_high = {};  // of the last evaluation, all units high
  std::int64_t skipped_updates = 0;
  std::uint64_t refreshes = 0;  // scales that were renewed before their interval was over, since step 1
  std::uint64_t dropped_lines = 0;
  ControlCounts control = {};
  StepSeconds seconds = {};
};

/// Who gets the reports. All calls come from the thread that called `train`.
class TrainObserver {
 public:
  virtual ~TrainObserver() = default;
  virtual void started(const TrainStart& start) = 0;
  virtual void stepped(const TrainLine& line) = 0;
  virtual void evaluated(const EvalLine& line) = 0;
  virtual void noted(const std::string& text) = 0;

  /// Asked after each step: true ends the run with a checkpoint.
  virtual bool stop_wanted() = 0;

  /// Asked before each step: a mode that a signal or the like has asked for since.
  virtual std::optional<Mode> mode_wanted() = 0;
};

/// The engine.
class Engine {
 public:
  virtual ~Engine() = default;

  /// Which torch and devices there are.
  virtual std::string about() const = 0;

  /// Trains; an `Error` where it cannot. `group` names a process group that Python's torch.distributed has made: this
  /// process is then one rank of the run. Empty: it is all of it.
  virtual TrainOutcome train(const TrainSettings& settings, TrainObserver& observer, const std::string& group) = 0;
};

/// The function that the library exports: the engine, or null where it was built from another interface.
using OpenEngine = Engine*(std::uint64_t interface);
inline constexpr const char* kOpenEngineName = "gnmr_engine_open";

}  // namespace gnmr::run

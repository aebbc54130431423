// SPDX-License-Identifier: Apache-2.0
// Signals and alarm of all units on the device, before the update: the alarm holds it without the host.
//
//   UnitSignals signals(units, {.rules = signal_rules(options), .window = ..., .alarm = {...}});
//   signals.set_flags(flags, stream);                                    // where a decision changed them
//   each step: signals.observe({.norms = norms}, HoldRule::for_trial, {.gate = gate, .alarm = alarm}, stream);
//
// Goals: bit for bit what the core computes (unit_step.h); two launches, nothing waits; the device itself keeps the
// step or forgets it. Non-goals: decisions, budgets: those are the host's, one step later.
//
// An object belongs to one thread and one stream at a time. Pointers in the structures are to device memory.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "gnmr/core/state.h"
#include "gnmr/kernels/norms.h"
#include "gnmr/kernels/unit_step.h"

namespace gnmr::kernels {

/// Rules of a run.
struct SignalSettings {
  unit_math::Rules rules;
  std::uint32_t window = 5;
  AlarmRules alarm = {};
};

/// The numbers of a step, one per unit.
struct SignalInputs {
  const double* norms = nullptr;
  const std::uint8_t* sampled = nullptr;  // 0: no sample; null: all have one
  const std::uint8_t* patrol = nullptr;   // patrol_flag; null: there was none
  const std::uint8_t* flags = nullptr;    // gate_flag; null: as `set_flags` has them
  const HoldRule* hold = nullptr;         // one, taken in the place of the argument; null: that
};

/// What a step writes; null: not wanted.
struct SignalOutputs {
  Gate* gate = nullptr;          // `apply` becomes 0 where the update is held; otherwise it stays
  StepAlarm* alarm = nullptr;    // one
  RiskKind* risks = nullptr;     // one per unit
  double* severities = nullptr;  // one per unit; 0 where there is no risk
};

/// The state of the units, as bytes of the host: for checkpoints and comparisons.
struct SignalMemory {
  std::vector<double> doubles;        // columns of `UnitColumns`, one after another
  std::vector<std::uint32_t> counts;  // likewise
  std::vector<double> ratios;         // [slot][unit]
  std::vector<double> inverses;       // [slot][unit]

  bool operator==(const SignalMemory&) const = default;
};

/// What one unit has gathered, as a controller's state has it.
struct UnitPast {
  std::uint32_t samples = 0;
  std::uint32_t changes = 0;
  double mean_sum = 0;
  double rise_change_sum = 0;
  double fall_change_sum = 0;
  std::span<const double> ratios = {};    // kept ones, oldest first, at most the window
  std::span<const double> inverses = {};  // as many
};

/// The state of units without a past.
SignalMemory empty_memory(std::uint32_t units, const SignalSettings& settings);

/// Gives one unit its past.
void store(SignalMemory& memory, const SignalSettings& settings, std::uint32_t unit, const UnitPast& past);

/// The state that a controller has of its units.
SignalMemory memory_of(const ControllerState& state, const SignalSettings& settings);

/// The histories of all units, on the device.
class UnitSignals {
 public:
  /// Units without a past; all are free. An `Error` for a window that is not 1 to 1024.
  UnitSignals(std::uint32_t units, const SignalSettings& settings);
  UnitSignals(UnitSignals&&) noexcept;
  UnitSignals& operator=(UnitSignals&&) noexcept;
  ~UnitSignals();

  /// What the host knows of the units from now on (gate_flag), one per unit; an `Error` for another number.
  void set_flags(std::span<const std::uint8_t> flags, void* stream);

  /// One step. The same norms observed again after a step that was forgotten give the same.
  void observe(const SignalInputs& inputs, HoldRule hold, const SignalOutputs& outputs, void* stream);

  /// The memory after all steps so far; waits for the stream.
  SignalMemory save(void* stream) const;

  /// Takes over a state of as many units and the same window, else an `Error`; waits for the stream.
  void load(const SignalMemory& memory, void* stream);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace gnmr::kernels

// SPDX-License-Identifier: Apache-2.0
// One unit in one step, on plain columns: the two passes of section "Signals" of docs/algorithm.md, and the alarm.
//
// Goals: g++ and nvcc compile the same lines, so that the device takes the core's decisions bit for bit (the arithmetic
// is gnmr/core/unit_math.h's; the flags that it needs are those of that header). Non-goals: the core's lanes and lists.
//
// Memories are double-buffered: a step reads `now` and writes all of `next`. Kept values lie in a ring of `window` + 1
// slots per unit: the new ones go to the unit's spare slot, and joining means that the next step's spare slot is
// another. A ring full of 1 is empty, as a first ratio and inverse are 1 and the oldest kept stands for all that are
// missing.
#pragma once

#include <cstddef>
#include <cstdint>

#include "gnmr/core/gate_rule.h"
#include "gnmr/core/unit_math.h"

namespace gnmr::kernels {

/// What the patrol says of a unit in a step.
namespace patrol_flag {
inline constexpr std::uint8_t kMeasured = 1;   // at least one of its errors
inline constexpr std::uint8_t kStandsOut = 2;  // one of them does
}  // namespace patrol_flag

/// What an error says of its unit; NaN: it was not measured.
GNMR_UNIT_MATH std::uint8_t patrol_of_error(double error, float limit) {
  if (error != error) return 0;
  const bool is_above = error > static_cast<double>(limit) || error > 1.7976931348623157e308;
  return is_above ? patrol_flag::kMeasured | patrol_flag::kStandsOut : patrol_flag::kMeasured;
}

/// The state of the units, one entry per unit in each column.
struct UnitColumns {
  double* mean_sum;         // m
  double* mean_weight;      // p
  double* rise_change_sum;  // q
  double* fall_change_sum;  // f
  double* noise_weight;     // w
  std::uint32_t* samples;   // k
  std::uint32_t* spare;     // the slot that new values go to; the oldest kept are in the one after it
};
inline constexpr std::size_t kDoubleColumns = 5;
inline constexpr std::size_t kBytesPerUnit = kDoubleColumns * sizeof(double) + 2 * sizeof(std::uint32_t);

/// Everything that a step reads and writes.
struct StepColumns {
  unit_math::Rules rules;
  std::uint32_t units;
  std::uint32_t slots;  // window + 1
  UnitColumns now;
  UnitColumns next;
  double* ratios;    // [slot][unit]
  double* inverses;  // [slot][unit]
  const double* norms;
  const std::uint8_t* sampled;  // 0: no sample; null: all have one
  const std::uint8_t* flags;    // gate_flag
  const std::uint8_t* patrol;   // patrol_flag; null: there was none
};

/// Columns in memory of `units * kBytesPerUnit` bytes, aligned for doubles.
GNMR_UNIT_MATH UnitColumns unit_columns(void* memory, std::size_t units) {
  auto* const doubles = static_cast<double*>(memory);
  auto* const counts = reinterpret_cast<std::uint32_t*>(doubles + kDoubleColumns * units);
  return {.mean_sum = doubles,
          .mean_weight = doubles + units,
          .rise_change_sum = doubles + 2 * units,
          .fall_change_sum = doubles + 3 * units,
          .noise_weight = doubles + 4 * units,
          .samples = counts,
          .spare = counts + units};
}

/// The state of a unit without any sample.
GNMR_UNIT_MATH void forget(const UnitColumns& columns, std::size_t unit) {
  columns.mean_sum[unit] = 0.0;
  columns.mean_weight[unit] = 1.0;
  columns.rise_change_sum[unit] = 0.0;
  columns.fall_change_sum[unit] = 0.0;
  columns.noise_weight[unit] = 1.0;
  columns.samples[unit] = 0;
  columns.spare[unit] = 0;
}

/// Whether a norm is a finite number above 0. Norms are never negative here; one that is counts as not finite.
GNMR_UNIT_MATH bool is_plain_norm(double norm) { return norm > 0.0 && norm <= 1.7976931348623157e308; }

GNMR_UNIT_MATH bool has_sample(const StepColumns& step, std::size_t unit) {
  return step.sampled == nullptr || step.sampled[unit] != 0;
}

GNMR_UNIT_MATH double ratio_of_unit(const StepColumns& step, std::size_t unit, double norm) {
  const double complement = unit_math::complement_of(step.now.mean_weight[unit]);
  return unit_math::ratio_of(norm, unit_math::mean_of(step.now.mean_sum[unit], complement));
}

/// What the first pass adds up over units; integers, so that the order does not matter.
struct CentreShare {
  unsigned long long sum;
  std::uint32_t count;
};

/// First pass: what a unit adds to the centre.
GNMR_UNIT_MATH CentreShare first_pass(const StepColumns& step, std::size_t unit) {
  const double norm = step.norms[unit];
  if (!has_sample(step, unit) || !is_plain_norm(norm) || step.now.samples[unit] == 0) return {0, 0};
  const double share = unit_math::centre_share(ratio_of_unit(step, unit, norm));
  return {static_cast<unsigned long long>(share), 1};
}

/// The centre of a step from what the first pass added up.
GNMR_UNIT_MATH double centre_of(unsigned long long sum, std::uint32_t count) {
  if (count == 0) return 1.0;
  return static_cast<double>(sum) / static_cast<double>((1ull << 20) * count);
}

/// What the second pass found of one unit.
struct Finding {
  bool sampled;
  RiskKind risk;
  double severity;  // of a risk; 0 where there is none
};

/// A 0, a NaN or an infinity: nothing is learned.
GNMR_UNIT_MATH Finding without_plain_norm(const StepColumns& step, std::size_t unit, double norm) {
  if (norm != 0.0) return {true, RiskKind::non_finite, __builtin_huge_val()};
  const bool is_gone = step.rules.fall_on && step.now.samples[unit] >= step.rules.warmup_samples &&
                       (step.flags[unit] & gate_flag::kZeroMuted) == 0;
  if (!is_gone) return {false, RiskKind::none, 0.0};
  const double complement = unit_math::complement_of(step.now.noise_weight[unit]);
  return {true, RiskKind::fall, unit_math::severity_of_zero(step.rules, step.now.fall_change_sum[unit], complement)};
}

/// Second pass: what a unit's norm means, and its state afterwards.
GNMR_UNIT_MATH Finding second_pass(const StepColumns& step, std::size_t unit, double centre) {
  unit_math::Memory<double> memory{step.now.mean_sum[unit], step.now.mean_weight[unit], step.now.rise_change_sum[unit],
                                   step.now.fall_change_sum[unit]};
  double noise_weight = step.now.noise_weight[unit];
  std::uint32_t samples = step.now.samples[unit];
  std::uint32_t spare = step.now.spare[unit];
  Finding found{false, RiskKind::none, 0.0};
  const double norm = step.norms[unit];
  if (has_sample(step, unit)) {
    if (!is_plain_norm(norm)) {
      found = without_plain_norm(step, unit, norm);
    } else {
      const std::uint32_t oldest = spare + 1 == step.slots ? 0 : spare + 1;
      const std::size_t from = static_cast<std::size_t>(oldest) * step.units + unit;
      const std::size_t to = static_cast<std::size_t>(spare) * step.units + unit;
      const unit_math::Outcome outcome = unit_math::outcome_of(
          step.rules, memory, {step.ratios[from], step.inverses[from]},
          {norm, samples, unit_math::complement_of(noise_weight), ratio_of_unit(step, unit, norm)}, centre);
      step.ratios[to] = outcome.ratio;
      step.inverses[to] = outcome.inverse;
      memory = outcome.next;
      if (outcome.learned) noise_weight = unit_math::next_weight(step.rules.noise_beta, noise_weight);
      // Beyond this a count is as good as this.
      if (samples < 0x80000000u) ++samples;
      if (!(outcome.at_risk && step.rules.cap_on)) spare = oldest;
      found = {true, RiskKind::none, 0.0};
      if (outcome.at_risk) found = {true, outcome.by_fall ? RiskKind::fall : RiskKind::rise, outcome.severity};
    }
  }
  step.next.mean_sum[unit] = memory.mean_sum;
  step.next.mean_weight[unit] = memory.mean_weight;
  step.next.rise_change_sum[unit] = memory.rise_change_sum;
  step.next.fall_change_sum[unit] = memory.fall_change_sum;
  step.next.noise_weight[unit] = noise_weight;
  step.next.samples[unit] = samples;
  step.next.spare[unit] = spare;
  return found;
}

/// What the second pass counts over units.
struct Counts {
  std::uint32_t sampled;
  std::uint32_t non_finite;  // risks among them
  std::uint32_t finite_risks;
  std::uint32_t free_risks;    // free units at risk, whatever the kind, whose risk counts in spite of the doubt
  std::uint32_t unmeasured;    // free units that were sampled and that no patrol has measured
  std::uint32_t standing_out;  // free units whose errors are outliers

  bool operator==(const Counts&) const = default;
};

/// What the alarm depends on besides counts.
struct AlarmRules {
  double common_share;
  Selector selector;  // in force
};

/// Whether the cause of the risks is common to the units: point 1 of section "Decision".
GNMR_UNIT_MATH bool is_common(const AlarmRules& rules, const Counts& counts) {
  const std::uint32_t fewest = 10;
  if (rules.common_share >= 1.0) return false;
  const std::uint32_t finite = counts.sampled - counts.non_finite;
  if (finite >= fewest) return counts.finite_risks > rules.common_share * static_cast<double>(finite);
  return counts.sampled >= fewest && finite == 0;
}

/// Whether the step is alarmed: point 3 of section "Report".
GNMR_UNIT_MATH bool is_alarmed(const AlarmRules& rules, const Counts& counts) {
  const bool errors_count = rules.selector != Selector::norms;
  if (counts.non_finite > 0 || (errors_count && counts.standing_out > 0)) return true;
  const bool is_complete = errors_count && counts.unmeasured == 0;
  return counts.free_risks > 0 && !is_complete;
}

/// Whether a step that has no trial has candidates before its decision: what a guard looks at, points 5 and 6 there.
GNMR_UNIT_MATH bool has_candidates(const AlarmRules& rules, const Counts& counts) {
  const bool by_norms = counts.free_risks > 0 && !is_common(rules, counts);
  const bool by_errors = counts.standing_out > 0;
  switch (rules.selector) {
    case Selector::automatic:
      break;
    case Selector::norms:
      return by_norms;
    case Selector::evidence:
      return by_errors;
    case Selector::evidence_after_alarm:
      return by_errors && counts.non_finite + counts.finite_risks > 0;
    case Selector::trial:
      return by_errors || (by_norms && is_alarmed(rules, counts));
  }
  return false;
}

/// The end of a step.
struct StepAlarm {
  double centre;
  Counts counts;
  std::uint32_t common;
  std::uint32_t alarmed;
  std::uint32_t held;  // the update is held

  bool operator==(const StepAlarm&) const = default;
};

/// What the counts of a step come to.
GNMR_UNIT_MATH StepAlarm alarm_of(const AlarmRules& rules, const Counts& counts, double centre, HoldRule hold) {
  const bool alarmed = is_alarmed(rules, counts);
  const bool held =
      (hold == HoldRule::for_trial && alarmed) || (hold == HoldRule::for_guard && has_candidates(rules, counts));
  return {centre, counts, is_common(rules, counts) ? 1u : 0u, alarmed ? 1u : 0u, held ? 1u : 0u};
}

/// Whether the step's norms are forgotten.
GNMR_UNIT_MATH bool is_withdrawn(const StepAlarm& alarm, HoldRule hold) {
  return hold == HoldRule::for_trial && alarm.held != 0;
}

/// Whether a risk counts in spite of the doubt: section "Doubt".
GNMR_UNIT_MATH bool counts_in_doubt(unsigned flags, double severity) {
  const unsigned doubt = 1u << ((flags & gate_flag::kDoubt) >> gate_flag::kDoubtShift);
  return doubt == 1 || severity > static_cast<double>(doubt);
}

/// What one unit adds to the counts.
GNMR_UNIT_MATH Counts counts_of(const StepColumns& step, std::size_t unit, const Finding& found) {
  const bool is_free = (step.flags[unit] & gate_flag::kFree) != 0;
  const std::uint32_t patrol = step.patrol == nullptr ? 0u : step.patrol[unit];
  const bool at_risk = found.risk != RiskKind::none;
  const bool finite = found.risk != RiskKind::non_finite;
  return {found.sampled ? 1u : 0u,
          finite ? 0u : 1u,
          at_risk && finite ? 1u : 0u,
          at_risk && is_free && counts_in_doubt(step.flags[unit], found.severity) ? 1u : 0u,
          found.sampled && is_free && (patrol & patrol_flag::kMeasured) == 0 ? 1u : 0u,
          is_free && (patrol & patrol_flag::kStandsOut) != 0 ? 1u : 0u};
}

}  // namespace gnmr::kernels

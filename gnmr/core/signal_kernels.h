// SPDX-License-Identifier: Apache-2.0
// The two passes over all units that make up an observation, as functions on plain columns.
//
// Pass 1 writes each unit's ratio and sums the centre; pass 2 finds what is usual and writes the next histories. Units
// that are plainly usual go several lanes at a time; the others (exceptions: no sample, a zero, a NaN, a risk, not
// warm, ...) one at a time through `unit_math::outcome_of`. Both give the same bits; every lane width does too.
//
// Private to the core. The lane code is compiled once an instruction set (signal_kernels_*.cpp) and picked at run
// time; it must use nothing but what is inlined, so that no function compiled for a newer machine is linked elsewhere.
#pragma once

#include <cstddef>
#include <cstdint>

#include "gnmr/core/unit_math.h"

namespace gnmr {

class WeightTable;

/// Units to a block: a slot of a block's kept values, ratios then inverses, fills one cache line.
inline constexpr std::size_t kBlockUnits = 4;

/// What an exception did in the observed step; 0: plainly usual.
namespace status {
inline constexpr std::uint8_t kNoSample = 1;    // not sampled, in the sense of a decision
inline constexpr std::uint8_t kNotCounted = 2;  // no finite norm that is not 0: memory unchanged
inline constexpr std::uint8_t kNotLearned = 4;  // the usual change did not take it
inline constexpr std::uint8_t kNotKept = 8;     // ratio and inverse did not join the kept ones
inline constexpr std::uint8_t kFirst = 16;      // k was 0
inline constexpr std::uint8_t kZero = 32;       // the gradient is gone
inline constexpr std::uint8_t kRiskShift = 6;   // RiskKind in the two highest bits
inline constexpr std::uint8_t kUnchanged = kNotCounted | kNotLearned | kNotKept;
inline constexpr std::uint8_t kAbsent = kNoSample | kUnchanged;
}  // namespace status

/// The signals of a unit at risk.
struct RiskRecord {
  double ratio;
  double delta;
  double fall;
  double severity;
};

/// How often a unit did not take part. Nothing of it is written in a calm step.
struct Absences {
  std::uint32_t uncounted;  // k = rows - uncounted
  std::uint32_t unlearned;  // changes learned = rows - unlearned
  std::uint32_t unsampled;
  std::uint32_t unused;
};

/// How far the units of a block have come.
enum class Stage : std::uint8_t {
  fresh = 0,    // some are not warm: one by one
  warm = 1,     // all are warm
  settled = 2,  // and their means have no weight left to divide by
};

/// Where a pass writes the exceptions of the step: units without a sample, and all others; and of these the risks,
/// ascending. Room for every unit and kBlockUnits more.
struct ExceptionArrays {
  std::uint8_t* status;
  std::uint32_t* unsampled;
  std::uint32_t* others;
  std::uint32_t* risks;
  RiskRecord* risk_records;
};

/// Everything a pass reads and writes. Arrays are padded to whole blocks.
struct SignalColumns {
  unit_math::Rules rules;
  std::size_t units;
  bool far;  // ratios are computed again in pass 2 rather than read back

  // Memories before and after the step (two sets, so that an observation can be withdrawn).
  unit_math::Memory<const double*> memory;
  unit_math::Memory<double*> next;

  // Kept values: [block][slot][ratios of the block, inverses of the block].
  double* kept;
  std::size_t slots;
  std::size_t new_slot;
  std::size_t oldest_slot;

  std::uint32_t rows;
  const Absences* absences;
  const Stage* stages;  // one per block
  const std::uint8_t* zero_muted;

  const WeightTable* noise_weights;  // w by count
  double noise_reciprocal;           // a little below 1 / (1 - w) of the unit that has learned most

  ExceptionArrays out;

  // Where a slot's ratios of the block of `unit` begin; inverses lie kBlockUnits further on.
  GNMR_UNIT_MATH double* kept_at(std::size_t unit, std::size_t slot) const {
    return kept + ((unit / kBlockUnits) * slots + slot) * (2 * kBlockUnits) + unit % kBlockUnits;
  }
};

/// What the passes add up.
struct SignalTotals {
  std::uint64_t centre_sum = 0;
  std::uint64_t centre_count = 0;
  double centre = 1;
  std::size_t unsampled = 0;
  std::size_t exceptions = 0;
  std::size_t risks = 0;
  std::size_t non_finite = 0;
  std::size_t not_kept = 0;              // among the exceptions
  std::size_t negative_unit = SIZE_MAX;  // first unit with a negative norm, where there is one
};

/// A run of whole blocks. `norms` and `sampled` point at the first unit's; `sampled` may be null.
struct SignalRange {
  const void* norms;
  const std::uint8_t* sampled;
  std::size_t first;
  std::size_t last;
};

/// One pass over a range.
using SignalPass = void (*)(const SignalColumns&, const SignalRange&, SignalTotals&);

/// The passes for one instruction set.
struct SignalKernels {
  const char* name;
  SignalPass ratios_f32;
  SignalPass ratios_f64;
  SignalPass changes_f32;
  SignalPass changes_f64;
};

/// Kernels that this machine can run, best first.
struct SignalKernelList {
  const SignalKernels* kernels[3];
  std::size_t count;
};
SignalKernelList available_signal_kernels();

/// One unit with a sample, in either pass, where the lane code does not apply.
void ratio_of_exception(const SignalColumns& columns, std::size_t unit, double norm, SignalTotals& totals);
void change_of_exception(const SignalColumns& columns, std::size_t unit, double norm, SignalTotals& totals);

}  // namespace gnmr

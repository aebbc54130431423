// SPDX-License-Identifier: Apache-2.0
// What is usual for each unit, and how far a step is from it: section "Signals" of docs/algorithm.md, over all units.
//
// Goals: no allocation after construction; a calm step reads and writes each column once or twice, front to back.
// Non-goals: what is done about a risk (budget.h).
//
// State is kept as arrays. Memories are double-buffered: `observe` writes the next ones beside the current, `commit`
// swaps. Counts are kept as how often a unit did *not* take part, so that a calm step writes none of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "gnmr/core/aligned_array.h"
#include "gnmr/core/block_stages.h"
#include "gnmr/core/kept_values.h"
#include "gnmr/core/options.h"
#include "gnmr/core/signal_kernels.h"
#include "gnmr/core/state.h"
#include "gnmr/core/step_exceptions.h"
#include "gnmr/core/types.h"
#include "gnmr/core/weight_table.h"

namespace gnmr {

/// The histories of all units.
class History {
 public:
  /// `kernels`: null takes the best that the machine has.
  History(std::size_t units, const Options& options, const SignalKernels* kernels = nullptr);

  History(const History&) = delete;
  History& operator=(const History&) = delete;

  /// What an observation found.
  struct Findings {
    std::span<const UnitIndex> risks;     // ascending
    std::span<const RiskRecord> records;  // one per risk
    std::uint32_t sampled = 0;
    std::uint32_t finite = 0;
    std::uint32_t finite_risks = 0;
    double centre = 1;
    std::size_t negative_unit = SIZE_MAX;  // first unit with a negative norm; then nothing else is set
  };

  /// Finds the signals of one step; histories do not change.
  const Findings& observe(const Observation& observation);

  /// Takes the observed step into the histories.
  void commit();

  /// Forgets what was observed.
  void discard_observation();

  /// Signals of one unit in the last observation, committed or not.
  Signals signals(UnitIndex unit) const;

  /// Whether the last observation has a sample of the unit.
  bool saw_sample(UnitIndex unit) const { return observed_ && was_sampled(unit); }

  /// The mean of the unit's norms that have been committed; 0 before the first.
  double mean(UnitIndex unit) const;

  bool was_sampled(UnitIndex unit) const { return !exceptions_.has(unit, status::kNoSample); }
  bool was_zero(UnitIndex unit) const { return exceptions_.has(unit, status::kZero); }
  RiskKind risk(UnitIndex unit) const { return exceptions_.risk(unit); }

  /// How many steps the unit has been sampled in; wraps round, only differences mean something.
  std::uint32_t sampled_steps(UnitIndex unit) const { return rows_ - absences_[unit].unsampled; }

  /// From now on a norm of 0 counts as no sample, until a finite one that is not 0 comes.
  void mute_zero(UnitIndex unit);
  bool is_zero_muted(UnitIndex unit) const { return zero_muted_[unit] != 0; }

  /// Copies the history of one unit out.
  void save_unit(UnitIndex unit, UnitState& state) const;

  /// The gate's form of `mute_zero`: gate_flag::kZeroMuted per unit, for the next observation.
  void set_zero_muted(std::span<const std::uint8_t> gate_flags);

  /// Readies a new history for units with these histories; comes before `restore_unit`. Weights of their means.
  WeightTable start_from(std::span<const UnitState> saved);

  /// What of a saved history still holds under the current options.
  struct Keep {
    bool means;
    bool changes;
  };
  /// `mean_weights` are those of `start_from`.
  void restore_unit(UnitIndex unit, const UnitState& state, Keep keep, const WeightTable& mean_weights);

 private:
  SignalColumns columns();
  void move_columns();
  void run_passes(const Observation& observation, SignalTotals& totals) const;
  void collect(const SignalTotals& totals);
  void advance_stages();
  bool is_warm_block(std::size_t block) const;
  bool is_settled_block(std::size_t block) const;
  void forget_excess_counts();
  double noise_complement_before(UnitIndex unit) const;

  unit_math::Rules rules_;
  const SignalKernels* kernels_;
  std::size_t units_;
  std::size_t padded_;

  struct MemoryColumns {
    AlignedArray<double> mean_sum, mean_weight, rise_change_sum, fall_change_sum;
  };
  MemoryColumns memory_[2];
  int current_ = 0;
  KeptValues kept_;

  std::uint32_t rows_ = 0;
  AlignedArray<Absences> absences_;
  WeightTable noise_weights_;
  BlockStages stages_;
  AlignedArray<std::uint8_t> zero_muted_;
  std::vector<UnitIndex> muted_units_;

  // The last observation.
  StepExceptions exceptions_;
  SignalColumns columns_;  // views of all these arrays
  Findings findings_;
  bool observed_ = false;
  bool committed_ = false;
};

}  // namespace gnmr

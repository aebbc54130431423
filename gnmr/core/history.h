// SPDX-License-Identifier: Apache-2.0
// What is usual for each unit, and how far a step is from it: section "Signals" of docs/algorithm.md, over all units.
//
// Goals: no allocation after construction; a calm step reads and writes each column once or twice, front to back.
// Non-goals: what is done about a risk (budget.h).
//
// State is kept as arrays. Memories are double-buffered: `observe` writes the next ones beside the current, `commit`
// swaps. Counts are kept as how often a unit did *not* take part, so that a calm step writes none of them. The kept
// ratios and inverses lie in a ring that turns for all units together; the few that did not take part are turned back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "gnmr/core/aligned_array.h"
#include "gnmr/core/options.h"
#include "gnmr/core/signal_kernels.h"
#include "gnmr/core/state.h"
#include "gnmr/core/types.h"
#include "gnmr/core/weight_table.h"

namespace gnmr {

/// The histories of all units.
class History {
 public:
  /// `kernels`: null takes the best that the machine has.
  History(std::size_t units, const Options& options, const SignalKernels* kernels = nullptr);

  /// What an observation found.
  struct Findings {
    std::span<const UnitIndex> risks;     // ascending
    std::span<const RiskRecord> records;  // one a risk
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

  bool was_sampled(UnitIndex unit) const { return (status_[unit] & status::kNoSample) == 0; }
  bool was_zero(UnitIndex unit) const { return (status_[unit] & status::kZero) != 0; }
  RiskKind risk(UnitIndex unit) const { return static_cast<RiskKind>(status_[unit] >> status::kRiskShift); }

  /// How many steps the unit has been sampled in; wraps round, only differences mean something.
  std::uint32_t sampled_steps(UnitIndex unit) const { return rows_ - absences_[unit].unsampled; }

  /// From now on a norm of 0 counts as no sample, until a finite one that is not 0 comes.
  void mute_zero(UnitIndex unit);
  bool is_zero_muted(UnitIndex unit) const { return zero_muted_[unit] != 0; }

  /// Copies the history of one unit out.
  void save_unit(UnitIndex unit, UnitState& state) const;

  /// Readies a new history for units that bring up to `rows` samples; comes before `restore_unit`.
  void start_from(std::uint32_t rows);

  /// What of a saved history still holds under the current options.
  struct Keep {
    bool means;
    bool changes;
  };
  /// `mean_weights` knows every count that the state brings.
  void restore_unit(UnitIndex unit, const UnitState& state, Keep keep, const WeightTable& mean_weights);

 private:
  std::size_t next_slot(std::size_t slot) const { return slot + 1 == slots_ ? 0 : slot + 1; }
  std::size_t kept_index(std::size_t unit, std::size_t slot) const {
    return ((unit / kBlockUnits) * slots_ + slot) * (2 * kBlockUnits) + unit % kBlockUnits;
  }
  double* kept_at(std::size_t unit, std::size_t slot) { return kept_.data() + kept_index(unit, slot); }
  const double* kept_at(std::size_t unit, std::size_t slot) const { return kept_.data() + kept_index(unit, slot); }
  SignalColumns columns();
  void run_passes(const Observation& observation, SignalColumns& columns, SignalTotals& totals);
  void collect(const SignalTotals& totals);
  void reset_exceptions();
  void advance_stages();
  bool is_warm_block(std::size_t block) const;
  bool is_settled_block(std::size_t block) const;
  void turn_kept();
  void turn_back(UnitIndex unit);
  void prefetch_kept(UnitIndex unit) const;
  void forget_excess_counts();
  double noise_complement_before(UnitIndex unit) const;

  Options options_;
  unit_math::Rules rules_;
  const SignalKernels* kernels_;
  std::size_t units_;
  std::size_t padded_;

  struct MemoryColumns {
    AlignedArray<double> mean_sum, mean_weight, rise_change_sum, fall_change_sum;
  };
  MemoryColumns memory_[2];
  int current_ = 0;

  std::size_t slots_;         // window + 1: the new values stand beside the kept ones until they are committed
  std::size_t new_slot_ = 0;  // the oldest kept is the next one
  AlignedArray<double> kept_;

  std::uint32_t rows_ = 0;
  AlignedArray<Absences> absences_;
  WeightTable noise_weights_;
  AlignedArray<Stage> stages_;
  std::size_t fresh_blocks_;
  std::size_t settled_blocks_ = 0;
  AlignedArray<std::uint8_t> zero_muted_;
  std::vector<UnitIndex> muted_units_;

  // The last observation.
  AlignedArray<std::uint8_t> status_;
  AlignedArray<std::uint32_t> unsampled_, exceptions_;
  AlignedArray<std::uint32_t> risks_;
  AlignedArray<RiskRecord> risk_records_;
  std::size_t unsampled_count_ = 0;
  std::size_t exception_count_ = 0;
  std::size_t not_kept_count_ = 0;
  Findings findings_;
  bool observed_ = false;
  bool committed_ = false;
  std::size_t seen_ratio_slot_ = 0;   // where the observed values of units that were kept lie now
  std::size_t seen_oldest_slot_ = 0;  // and the oldest ones before them
};

}  // namespace gnmr

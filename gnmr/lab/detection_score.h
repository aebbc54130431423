// SPDX-License-Identifier: Apache-2.0
// How well the controller's decisions meet faults that are known: recall, precision and delay.
//
// A fault is an unbroken run of faulty steps of one unit. It is found when the unit is admitted, or already in
// recovery, from its first step to its last. Precision is the share of admissions that fall into a fault. Delay is the
// step of admission minus the first step, over faults that an admission found.
//
// A decision counts from the next step on, whatever the option `lag` says. Faults are of batches: in a run that holds
// some (lag 1) the steps here are batches, and one that comes again is judged again.
//
// Goals: a stream of any length; one pass. Non-goals: reading files.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "gnmr/core/types.h"

namespace gnmr::lab {

/// Counts faults and admissions, step by step. It keeps the faults, not the steps.
class DetectionScore {
 public:
  /// `recovered`: units that are in recovery before the first step, as after a resumed run.
  explicit DetectionScore(std::size_t units, std::span<const UnitIndex> recovered = {});

  /// One step: which units were faulty in it, and the decision made after it. Steps come in order.
  void add(std::span<const std::uint8_t> faulty, const Decision& decision);

  /// One step of before (`decision.step`) that ran again, and the decision made after it.
  void add_again(const Decision& decision);

  std::uint64_t faults() const { return faults_; }
  std::uint64_t found() const { return found_; }
  std::uint64_t admissions() const { return admissions_; }
  std::uint64_t true_admissions() const { return true_admissions_; }

  /// Shares; NaN where there is nothing to share.
  double recall() const;
  double precision() const;

  /// Mean and largest delay in steps; NaN where no fault was found by an admission.
  double mean_delay() const;
  double largest_delay() const;

 private:
  struct UnitFault {
    std::int64_t first_step = 0;
    std::int64_t last_step = 0;  // so far
    bool found = false;
  };

  struct UnitFaults {
    std::vector<UnitFault> faults;  // by their steps
    bool faulty = false;            // in the last step
  };

  UnitFault* fault_in(UnitIndex unit, std::int64_t step);
  void find(UnitFault& fault);

  std::vector<UnitFaults> units_;
  std::vector<UnitIndex> recovered_;  // during the step, by the decision before it
  std::uint64_t faults_ = 0;
  std::uint64_t found_ = 0;
  std::uint64_t admissions_ = 0;
  std::uint64_t true_admissions_ = 0;
  std::uint64_t delays_ = 0;
  double delay_sum_ = 0;
  double largest_delay_ = 0;
};

}  // namespace gnmr::lab

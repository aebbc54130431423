// SPDX-License-Identifier: Apache-2.0
// How well the controller's decisions meet faults that are known: recall, precision and delay.
//
// A fault is an unbroken run of faulty steps of one unit. It is found when the unit is admitted, or already in
// recovery, from its first step to its last. Precision is the share of admissions that fall into a fault. Delay is the
// step of admission minus the first step, over faults that an admission found.
//
// A decision counts from the next step on, whatever the option `lag` says.
//
// Goals: a stream of any length; one pass. Non-goals: reading files.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "gnmr/core/types.h"

namespace gnmr::lab {

/// Counts faults and admissions, step by step.
class DetectionScore {
 public:
  /// `recovered`: units that are in recovery before the first step, as after a resumed run.
  explicit DetectionScore(std::size_t units, std::span<const UnitIndex> recovered = {});

  /// One step: which units were faulty in it, and the decision made after it. Steps come in order.
  void add(std::span<const std::uint8_t> faulty, const Decision& decision);

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
    bool faulty = false;  // in the last step
    bool found = false;
  };

  void find(UnitFault& fault);
  void set_recovered(std::span<const UnitIndex> recovered);

  std::vector<UnitFault> units_;
  std::vector<std::uint8_t> in_recovery_;  // during the step, by the decision before it
  std::vector<UnitIndex> recovered_;
  std::uint64_t faults_ = 0;
  std::uint64_t found_ = 0;
  std::uint64_t admissions_ = 0;
  std::uint64_t true_admissions_ = 0;
  std::uint64_t delays_ = 0;
  double delay_sum_ = 0;
  double largest_delay_ = 0;
};

}  // namespace gnmr::lab

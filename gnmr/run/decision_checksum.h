// SPDX-License-Identifier: Apache-2.0
// Numbers by which the processes of a run see whether they decided the same.
//
// Goals: equal decisions have equal checksums on every machine. Non-goals: saying what differs.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "gnmr/core/step.h"
#include "gnmr/run/outcome_listener.h"
#include "gnmr/run/switch_rule.h"

namespace gnmr::run {

/// What processes have in common between two steps.
struct CommonState {
  std::uint32_t decision = 0;            // the checksum of the last one
  std::span<const UnitIndex> high = {};  // in force
  std::uint8_t mode = 0;
  std::span<const SwitchRule> rules = {};
};

/// Of how a step ended: its verdict, its action and all lists of its decision. Errors and coefficients are not part of
/// it.
std::uint32_t checksum_of(const Outcome& outcome);

/// Of all that is common.
std::uint32_t checksum_of(const CommonState& state);

/// Keeps that of the last decision.
class LastDecision : public OutcomeListener {
 public:
  void reported(const ReportedRun& run) override;

  /// 0: there was none.
  std::uint32_t checksum() const { return checksum_; }
  void clear() { checksum_ = 0; }

 private:
  std::uint32_t checksum_ = 0;
};

}  // namespace gnmr::run

// SPDX-License-Identifier: Apache-2.0
// What a replay comes to, in figures.
//
// Goals: constant memory in the number of steps; the same figures as text and as JSON.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gnmr/core/controller.h"
#include "gnmr/lab/detection_score.h"

namespace gnmr::app {

/// Adds up alarms and decisions.
class ReplaySummary {
 public:
  explicit ReplaySummary(const Controller& controller);

  /// Adds one step.
  void add(const Alarm& alarm, const Decision& decision);

  /// The figures for people; `score` may be null, `run` empty.
  std::string text(const lab::DetectionScore* score, const std::string& run = {}) const;

  /// The figures for programs, one line of JSON.
  std::string json(const lab::DetectionScore* score, const std::string& run = {}) const;

  std::uint64_t steps() const { return steps_; }

 private:
  std::vector<UnitIndex> most_often_at_risk() const;
  double risks_per_thousand() const;
  double mean_share() const;
  double peak_share() const;

  std::vector<std::string> names_;
  std::uint32_t budget_;
  std::vector<std::uint64_t> risks_by_unit_;
  std::uint64_t steps_ = 0;
  std::uint64_t sampled_ = 0;
  std::uint64_t risks_ = 0;
  std::uint64_t non_finite_ = 0;
  std::uint64_t recoveries_ = 0;
  std::uint64_t denials_ = 0;
  std::uint64_t futile_ = 0;
  std::uint64_t common_ = 0;
  std::uint64_t recovered_sum_ = 0;
  std::uint64_t recovered_peak_ = 0;
};

}  // namespace gnmr::app

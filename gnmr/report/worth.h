// SPDX-License-Identifier: Apache-2.0
// What running steps again was worth: how many reruns changed the update, how many were for nothing, what they cost.
//
// Goals: one computation for the page of a run and for `gnmr explain`. Non-goals: what recoveries in later steps were
// worth: that is not measured, only comparing whole runs shows it (gnmr/lab).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gnmr/io/journal_reader.h"
#include "gnmr/run/metrics.h"

namespace gnmr::report {

/// What came of one rerun.
enum class RerunOutcome : std::uint8_t {
  helpful,     // units' low paths were wrong, and the gradient that made the update is another one
  slight,      // ... but the two gradients hardly differ
  unmeasured,  // ... and how far the gradients are apart is not known
  wasted,      // high precision shows the same: the cause is common
  unlocated,   // high precision does not show it, and no unit is an outlier
  other,       // a verdict that is not known here
};

/// One word for each.
std::string_view to_string(RerunOutcome outcome);

/// By verdict and distance (`io::kHelpfulDistance`); a replay has no verdict and goes by its distance alone. A distance
/// that is not a number is as far as can be.
RerunOutcome outcome_of(const io::JournalTrial& trial);

/// The sums over a run.
struct RerunWorth {
  std::uint64_t reruns = 0;
  std::uint64_t replays = 0;  // of these; the others are trials
  std::uint64_t helpful = 0;
  std::uint64_t slight = 0;
  std::uint64_t unmeasured = 0;
  std::uint64_t wasted = 0;
  std::uint64_t unlocated = 0;
  std::uint64_t other = 0;
  std::uint64_t not_applied = 0;            // whose gradient made no update either
  double seconds = 0;                       // in reruns
  std::optional<double> step_seconds = {};  // in all steps, reruns included; absent if metrics do not have it
  std::optional<double> share = {};         // of the two
};

/// Goes through a journal; `metrics` may be null.
RerunWorth rerun_worth(const io::Journal& journal, const run::Metrics* metrics);

/// The sums in a sentence or two.
std::string worth_text(const RerunWorth& worth);

/// The error of a trial with the largest excess, and that excess: `0.31 (4.1 × limit)`; empty where there is none.
std::string error_text(const io::JournalTrial& trial);

/// The index of the worst unit: by excess, else by error, else the first.
std::size_t worst_unit(const io::JournalTrial& trial);

/// The number at `index`, if there is one.
std::optional<double> number_in(const std::vector<double>& numbers, std::size_t index);

/// The first few texts and how many more there are; repeated ones are given once.
std::string few_of(const std::vector<std::string>& texts, std::size_t most = 4);

}  // namespace gnmr::report

// SPDX-License-Identifier: Apache-2.0
// What each recovery was worth and what it cost, and the sums.
//
// Worth is what the rerun of the admitting step measured: two losses, and how far apart the two gradients are. What the
// steps after it would have been in low precision is not measured in one run; only comparing whole runs shows it
// (gnmr/lab).
//
// Cost in seconds has two parts. A rerun's seconds are measured, and shared equally by the units that were admitted in
// its step. What high precision takes in the steps of the recovery is estimated from metrics: a step's seconds without
// reruns, less the usual ones, shared by the units in recovery in that step in proportion to their cost. The usual is
// the median of the last `kUsualSteps` steps before the recovery in which no unit was in one. It is negative where the
// low path is the slower one, as it is where formats are emulated.
//
// Goals: one computation for the page of a run and for `gnmr explain`; sums of all recoveries, listed or not.
// Non-goals: judging single reruns (worth.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gnmr/report/run_files.h"
#include "gnmr/report/worth.h"

namespace gnmr::report {

/// Steps without recovery that say what a step usually takes.
inline constexpr std::size_t kUsualSteps = 25;

/// One recovery, from admission to release.
struct RecoveryAudit {
  std::string unit;
  Recovery recovery = {};
  std::string verdict = {};                  // of the rerun in the admitting step, or `replay`; empty: there was none
  std::string place = {};                    // of the unit's largest error
  std::optional<double> error = {};          // there
  std::optional<RerunOutcome> outcome = {};  // of that rerun
  std::optional<double> loss = {};           // of the alarmed step
  std::optional<double> rerun_loss = {};     // of the rerun
  std::optional<double> distance = {};       // of the two gradients
  double rerun_seconds = 0;                  // its share
  std::optional<double> extra_seconds = {};  // of its steps in high precision; absent: not known

  /// All that is known of its cost.
  double seconds() const { return rerun_seconds + extra_seconds.value_or(0); }
};

/// All recoveries of a run, and the sums.
struct Audit {
  std::vector<RecoveryAudit> recoveries;  // by their first steps
  std::uint64_t rerun = 0;                // recoveries whose admitting step was run again; of these
  std::uint64_t helpful = 0;
  std::uint64_t slight = 0;
  double loss_difference = 0;        // alarmed less rerun, over reruns that admitted units, where both are finite
  std::uint64_t losses = 0;          // such reruns
  std::uint64_t not_finite = 0;      // reruns that admitted units and made a finite loss of one that was not
  double rerun_seconds = 0;          // in reruns that admitted units
  std::uint64_t other_reruns = 0;    // that admitted none
  double other_seconds = 0;          // in these
  double extra_seconds = 0;          // in high precision, of the recoveries for which it is known
  std::uint64_t timed = 0;           // such recoveries
  std::optional<double> share = {};  // of all seconds in steps; absent if metrics do not have it

  /// The whole cost.
  double seconds() const { return rerun_seconds + other_seconds + extra_seconds; }
};

/// Audits a run that has a journal. Nothing was recovered, and there is nothing to audit, where it only watched.
Audit audit_run(const RunFiles& run);

/// At most `most` of the recoveries that are given, those that cost most, in their order; 0: all.
std::vector<RecoveryAudit> costliest(std::vector<RecoveryAudit> recoveries, std::size_t most);

/// A recovery as texts, the same on the page and on a terminal.
struct AuditRow {
  std::string steps;  // `13 to 15`, `13 on` where it is open at the end
  std::string unit;
  std::string verdict = {};  // `numeric`, `replay`, `not run again`
  std::string place = {}, error = {};
  std::string worth = {};  // `helpful`; `not measured` where nothing was run again
  std::string loss = {};   // `3.5 → 2.5`
  std::string distance = {};
  std::string rerun_seconds = {}, extra_seconds = {}, seconds = {};
  std::string end = {};  // `released`, `futile`, `open`
};

/// The texts of one recovery.
AuditRow audit_row(const RecoveryAudit& recovery);

/// The sums as a row, over all recoveries.
AuditRow sum_row(const Audit& audit);

/// The sums in sentences.
std::string audit_text(const Audit& audit);

/// How the cost is found, in sentences.
std::string audit_method_text();

/// A table for a terminal, headings first, the sums last; empty where there was no recovery.
std::vector<std::string> audit_lines(const Audit& audit, const std::vector<RecoveryAudit>& listed);

}  // namespace gnmr::report

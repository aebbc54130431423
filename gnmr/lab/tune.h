// SPDX-License-Identifier: Apache-2.0
// How thresholds trade risks, recoveries and denials on a recorded run: many replays of it side by side.
//
//   Tuner tuner(units, tune_grid(base, {...}), {.truth = true});
//   while (read a block of rows) tuner.add(block);
//   std::vector<TuneResult> results = tuner.results();
//   mark_best(results, true);
//
// Goals: one pass over a run of any length, the replays in parallel; numbers that do not depend on the number of
// threads. Non-goals: files; choosing (tune_choice.h); what a recovery would have changed: a recorded run does not
// answer to it, so lock_steps and the budget show in numbers of recoveries and faults met, not in norms.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "gnmr/core/options.h"
#include "gnmr/core/types.h"

namespace gnmr::lab {

/// Options to try, and how they differ from those that were given.
struct TuneCandidate {
  Options options;            // its selector is `norms` or `evidence`
  double factor = 1;          // on tau - 1, delta_tau and fall_tau
  double ceiling_factor = 1;  // on error_ceiling
  int changes = 0;            // axes that are not as given

  bool by_evidence() const { return options.selector == Selector::evidence; }
};

/// What there is to try.
struct TuneGridSettings {
  std::uint32_t budget = 0;   // units in recovery at one time under the given options
  std::uint32_t units = 0;    // that are not forced
  bool evidence = false;      // errors of low paths are known
  double expected_error = 0;  // of the format; 0: not known, and error_ceiling has no effect
};

/// At most about 200 candidates round `base`; those with nothing but the given values come first in their family.
std::vector<TuneCandidate> tune_grid(const Options& base, const TuneGridSettings& settings);

/// What a candidate came to.
struct TuneScore {
  std::uint64_t steps = 0;
  std::uint64_t looked_at = 0;  // unit-steps with a sample, or with an error that was measured
  std::uint64_t risks = 0;      // of these: at risk, or with an error above its limit (not in recovery)
  double risk_rate = 0;         // a thousand unit-steps
  double own_rate = 0;          // of these, outside common steps: risks that are a unit's own
  double calm_rate = 0;         // the same in the calmest nine tenths of the run
  std::uint64_t admissions = 0;
  std::uint64_t denials = 0;
  std::uint64_t futile = 0;
  double mean_share = 0;  // of the units in recovery
  double peak_share = 0;
  /// What the median unit shows at least before it is seen; NaN where that is not known.
  double sees_rise = 0;   // norm, in means; by errors: not known
  double sees_fall = 0;   // how many times smaller than usual; not known where fall_tau is 0
  double sees_error = 0;  // error of the low path; by norms: not known

  std::uint64_t faults = 0;  // the rest where truth is known
  double recall = 0;         // NaN where there is nothing to share
  double precision = 0;
  double f_score = 0;  // 2 P R / (P + R); 0 where one of them is not defined
  double delay = 0;    // steps; NaN where no fault was found by an admission

  /// How much must happen before it is seen, in whole per cents of a factor: less is more sensitive. Finer differences
  /// are those of noise that was learned a little differently.
  double bluntness() const;
};

/// A candidate with its score.
struct TuneResult {
  TuneCandidate candidate;
  TuneScore score;
  bool best = false;  // no other of its family is at least as good in everything and better in something
};

/// Successive steps of a run; each array is row by row, a row one value per unit.
struct TuneBlock {
  std::vector<std::int64_t> steps = {};
  std::vector<double> norms = {};
  std::vector<std::uint8_t> sampled = {};
  std::vector<double> evidence = {};      // NaN: not measured; empty: none at all
  std::vector<std::uint8_t> faulty = {};  // empty: truth is not known

  void clear();
};

/// How to replay.
struct TunerSettings {
  bool truth = false;
  double expected_error = 0;
  unsigned threads = 0;  // 0: as many as the machine has
};

/// Replays a run under many options. It belongs to one thread, and uses more of its own within `add`.
class Tuner {
 public:
  /// Throws `Error` as `Controller` does.
  Tuner(const std::vector<Unit>& units, const std::vector<TuneCandidate>& candidates, const TunerSettings& settings);
  ~Tuner();

  /// The next steps.
  void add(const TuneBlock& block);

  /// The scores so far, in the order of the candidates.
  std::vector<TuneResult> results() const;

 private:
  class Replay;
  std::vector<std::unique_ptr<Replay>> replays_;
  unsigned threads_;
};

/// Sets `best`. With truth: recall, precision and the mean share in recovery count; without: bluntness, the rate of
/// risks outside common steps, denials and the mean share.
void mark_best(std::vector<TuneResult>& results, bool truth);

}  // namespace gnmr::lab

// SPDX-License-Identifier: Apache-2.0
// Which of the options that were tried to take, by a rule that is stated.
//
// With truth (and at least one fault): the highest F-score of precision and recall, ties to fewer recoveries, then to
// the smaller mean share in recovery, then to the fewest changes. Without: of the given lock_steps and max_o, which a
// recorded run says nothing of, the most sensitive whose risks outside common steps are at most `rate` a thousand
// unit-steps: over the whole run where it is known to have been healthy, in its calmest nine tenths where it is not;
// where there is none, the one with the lowest rate. Ties to the lower rate, then to the fewest changes.
//
// The selector stays as it was given: it says what a backend can measure. Thresholds of norms are chosen among the
// replays with `norms`, those of errors among those with `evidence`; lock_steps and max_o come from the latter where
// the given selector goes by errors and there are any.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "gnmr/lab/tune.h"

namespace gnmr::lab {

/// What is known of the run.
struct TuneRule {
  bool truth = false;
  bool healthy = false;
  double rate = 0.5;  // risks per thousand unit-steps
};

/// The choice in one family.
struct FamilyChoice {
  std::size_t result = 0;  // index
  std::string why;         // a sentence
};

/// The whole choice.
struct TuneChoice {
  std::optional<FamilyChoice> norms;
  std::optional<FamilyChoice> evidence;
  Options options;
};

/// Applies the rule; `base` are the options that were given.
TuneChoice choose_options(const std::vector<TuneResult>& results, const Options& base, const TuneRule& rule);

}  // namespace gnmr::lab

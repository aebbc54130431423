// SPDX-License-Identifier: Apache-2.0
// What `gnmr tune` found: as a table, as JSON, and as a page.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "gnmr/lab/tune.h"
#include "gnmr/lab/tune_choice.h"
#include "gnmr/report/sweep_page.h"

namespace gnmr::app {

/// All of it.
struct TuneOutcome {
  std::string run;  // its name, for titles
  std::uint64_t steps = 0;
  std::size_t units = 0;
  Options given;
  lab::TuneRule rule;
  std::vector<lab::TuneResult> results = {};
  lab::TuneChoice choice = {};
};

/// The table for people: the chosen, the given and the best replays, at most `most_rows` (0: all of these), or every
/// replay; below it the choice with its reason.
std::string tune_text(const TuneOutcome& outcome, std::size_t most_rows, bool every_replay);

/// Everything for programs, one line of JSON.
std::string tune_json(const TuneOutcome& outcome);

/// The page.
report::SweepPage tune_page(const TuneOutcome& outcome, const std::string& program);

}  // namespace gnmr::app

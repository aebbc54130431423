// SPDX-License-Identifier: Apache-2.0
// What one run of a suite (an arm with a seed) came to.
//
// It is measured from the run's folder alone (run.json, metrics.jsonl, journal.jsonl, faults.csv, faults.jsonl,
// harm.jsonl) once the run has finished, and kept as one small JSON file.
//
// Goals: a loss that is not finite stays one; a run that has not finished has no result. Non-goals: comparing cells.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "gnmr/run/high_share.h"

namespace gnmr::lab {

/// How admissions met the faults that were injected (gnmr/lab/detection_score.h); NaN where there is nothing to share.
struct Detection {
  std::uint64_t faults = 0;
  double recall = 0;
  double precision = 0;
  double delay = 0;                           // mean, in steps
  std::optional<double> largest_delay = {};   // in steps; files of before do not have it
  std::optional<std::uint64_t> outside = {};  // admissions in no fault; likewise
};

/// Injected faults by the harm that they did (gnmr/lab/fault_harm.h).
struct FaultHarm {
  std::uint64_t faults = 0;   // in layers
  std::uint64_t harmful = 0;  // of these
  std::uint64_t met = 0;      // of the harmful ones
  std::uint64_t covered = 0;  // of all: the layer ran high in all of its steps
  std::uint64_t of_run = 0;   // in no layer: a bad batch

  /// Those that matter: harmful, or covered, which counts as met.
  std::uint64_t counted() const { return harmful + covered; }

  /// Share of those that were met; NaN where there are none.
  double recall() const;
};

/// Steps that were run again before their update.
struct Reruns {
  std::uint64_t numeric = 0;  // trials by their verdict
  std::uint64_t common = 0;
  std::uint64_t unlocated = 0;
  std::uint64_t replays = 0;
  double time_share = 0;  // of the run's time; steps whose harm was measured beside count as long as others

  std::uint64_t trials() const { return numeric + common + unlocated; }
};

/// Units on the high path, as shares of the watched units. What files of before do not say is none.
struct HighUse {
  double mean = 0;                             // over steps, for any reason, without reruns
  std::optional<run::HighShares> shares = {};  // what the controller is the reason of
  std::optional<double> total = {};            // unit passes of any reason, reruns included, in unit-steps
  std::optional<double> cost = {};             // the same of multiply-adds
};

/// Held-out losses at the end besides the one with all units high, and the loss of training.
struct Losses {
  std::optional<double> low = {};      // all units on the low path; none where there is none
  std::optional<double> trained = {};  // each unit on the path that it had at the end; none in files of before
  double train_tail = 0;               // mean of the last tenth of the steps
};

/// What a run was made with.
struct RunOrigin {
  std::string commit = {};            // of the build; empty: not known, as in files of before
  std::string torch = {};             // its version; likewise
  std::string device = {};            // likewise
  std::int64_t threads = 0;           // 0: not known
  std::int64_t lag = 0;               // of decisions
  std::optional<double> patrol = {};  // share of multiply-adds that it may take; none: not known
  std::string data = {};              // checksum of the text that it was trained on; empty: not known

  bool operator==(const RunOrigin&) const = default;
};

/// The figures of one finished run. Shares are of the watched units, means are over steps.
struct CellResult {
  std::string arm = {};
  std::int64_t seed = 0;
  std::string run = {};  // its folder, relative to the suite's
  std::int64_t steps = 0;
  double loss = 0;                          // held-out, at the end, all units high
  Losses losses = {};                       // others
  double share_mean = 0;                    // in recovery
  double share_peak = 0;                    // in recovery
  HighUse high = {};                        // on the high path for any reason
  double risks_per_thousand = 0;            // units at risk a thousand unit-steps
  std::uint64_t admissions = 0;             // recoveries that began; 0 where nothing is switched
  std::int64_t skipped_updates = 0;         // not finite, not applied
  double step_ms = 0;                       // median, of steps beside which no harm was measured
  std::int64_t units = 0;                   // that are watched
  std::optional<Detection> detection = {};  // where faults were injected and the controller switched
  std::optional<FaultHarm> harm = {};       // where it was measured
  std::optional<Reruns> reruns = {};        // where the controller switched
  std::optional<double> rule_share = {};    // of the steps whose update a rival's rule changed; none without one
  RunOrigin origin = {};
  std::string note = {};  // what a reader of the figures should know

  /// Whether the loss at the end is a number.
  bool diverged() const;

  /// The median step with its part of the reruns.
  double step_ms_with_reruns() const;
};

/// Measures the run in a folder; none where it has not finished. `arm`, `run` and `note` are left to the caller. An
/// `Error` where files are damaged.
std::optional<CellResult> measure_run(const std::string& run_folder);

/// A result as JSON.
std::string write_cell(const CellResult& cell);

/// A result from JSON; keys that are not known are skipped. `file` is for messages.
CellResult parse_cell(std::string_view text, const std::string& file);

/// Of such a text only `arm`, `seed` and `run`, of which the last two may be missing.
CellResult parse_cell_place(std::string_view text, const std::string& file);

}  // namespace gnmr::lab

// SPDX-License-Identifier: Apache-2.0
// Reads metrics.jsonl: what the training loop measured, a line a step or evaluation.
//
// Goals: files of runs that were killed, resumed, or are still writing; each step as it was told last.
// Non-goals: writing it, following it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace gnmr::report {

/// One optimizer step; numbers that were not written are absent.
struct TrainPoint {
  std::int64_t step = 0;
  std::optional<double> loss = {};
  std::optional<double> grad_norm = {};
  std::optional<double> tokens = {};
  std::optional<double> seconds = {};
  bool applied = true;                   // false: the update was skipped
  std::optional<double> recovered = {};  // units in recovery in this step
};

/// One evaluation on held-out data.
struct EvalPoint {
  std::int64_t step = 0;
  std::optional<double> loss_high = {};  // all units in high precision
  std::optional<double> loss_low = {};   // all units on their low path
};

/// All of a file, by ascending steps.
struct Metrics {
  std::vector<TrainPoint> train;
  std::vector<EvalPoint> evals;
  std::vector<std::int64_t> resumes;  // the next step of each, in the order of the file
  std::uint64_t dropped = 0;          // lines that the run could not write
  bool torn = false;                  // it ended within a line, which is passed over
};

/// Reads a file; an `Error` with its line where one but the last cannot be read.
Metrics read_metrics(const std::string& path);

}  // namespace gnmr::report

// SPDX-License-Identifier: Apache-2.0
// metrics.jsonl: what the training loop measured, a line a step or evaluation.
//
//   {"kind":"train","step":1,"loss":5.5,"lr":0.001,"grad_norm":1.25,"clip":0.8,"applied":true,"tokens":2048,
//    "seconds":0.11,"recovered":0,"high":0}
//   {"kind":"eval","step":50,"loss_high":2.31,"loss_low":2.35}
//   {"kind":"resume","step":51}
//   {"kind":"note","dropped":3,"text":"lines could not be written"}
//
// Goals: training goes on whatever the disk does, lines that have no place are counted; files of runs that were killed
// and resumed read as one run. Non-goals: what the controller saw (gnmr/io/journal.h has that).
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gnmr/io/record_sink.h"

namespace gnmr::run {

/// One optimizer step.
struct TrainLine {
  std::int64_t step = 0;
  double loss = 0;
  double lr = 0;
  double grad_norm = 0;                    // before clipping
  double clip = 1;                         // what the gradient was multiplied with
  bool applied = true;                     // false: the update was skipped
  std::int64_t tokens = 0;                 // of this step
  double seconds = 0;                      // that it took
  std::int64_t recovered = 0;              // units in recovery in this step
  std::int64_t high = 0;                   // all units that ran high in this step, forced ones included
  std::optional<std::int64_t> batch = {};  // where it has another number than the step: a batch was held (lag 1)

  bool operator==(const TrainLine&) const = default;
};

/// One evaluation on held-out data, after the update of `step`.
struct EvalLine {
  std::int64_t step = 0;
  std::optional<double> loss_high = {};  // all units in high precision
  std::optional<double> loss_low = {};   // all units on their low path

  bool operator==(const EvalLine&) const = default;
};

/// Where and how to write.
struct MetricsSettings {
  std::string path;
  io::ExistingFile existing = io::ExistingFile::refuse;
  std::int64_t resume_step = 1;                     // the next step, where a file is resumed
  std::size_t queue_bytes = std::size_t{4} << 20U;  // of lines that wait for the disk
};

/// Writes lines in the background. It belongs to one thread at a time; but for the constructor nothing throws or waits.
class MetricsWriter {
 public:
  /// Opens the file; an `Error` where that fails. A resumed file that has lines gets a `resume` line.
  explicit MetricsWriter(const MetricsSettings& settings);

  /// Adds a step.
  void write(const TrainLine& line);

  /// Adds an evaluation.
  void write(const EvalLine& line);

  /// Waits until all lines are with the operating system, at most so long; whether they are.
  bool flush(std::chrono::milliseconds longest = std::chrono::seconds(2)) { return sink_->flush(longest); }

  /// `flush`, and the end; lines that come later are lost.
  bool close(std::chrono::milliseconds longest = std::chrono::seconds(2)) { return sink_->close(longest); }

  /// Lines that were lost so far.
  std::uint64_t dropped() const { return sink_->dropped(); }

 private:
  std::unique_ptr<io::RecordSink> sink_;
  std::string line_;  // reused
};

/// All of a file, by ascending steps.
struct Metrics {
  std::vector<TrainLine> train = {};
  std::vector<EvalLine> evals = {};
  std::vector<std::int64_t> resumes = {};  // the next step of each, in the order of the file
  std::uint64_t dropped = 0;               // lines that the writer could not write
  bool torn = false;                       // the file ended within a line, which is passed over
};

/// Reads a file. A resumed run supersedes what was told of its steps before: with a `resume` line all steps from there
/// on are forgotten, and the last line of a step counts. Kinds and keys that are not known are skipped; any other
/// damage is an `Error` with file and line.
Metrics read_metrics(const std::string& path);

}  // namespace gnmr::run

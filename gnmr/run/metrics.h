// SPDX-License-Identifier: Apache-2.0
// metrics.jsonl: what the training loop measured, a line per step or evaluation.
//
//   {"kind":"train","step":1,"loss":5.5,"lr":0.001,"grad_norm":1.25,"clip":0.8,"applied":true,"tokens":2048,
//    "seconds":0.11,"recovered":0,"high":0,"standing":0,"rerun_high":0,"high_cost":0}
//   {"kind":"eval","step":50,"loss_high":2.31,"loss_low":2.35,"loss_trained":2.33}
//   {"kind":"resume","step":51}
//   {"kind":"note","dropped":3,"text":"lines could not be written"}
//
// Goals: training goes on whatever the disk does, lines that have no place are counted; files of runs that were killed
// and resumed read as one run. Non-goals: what the controller saw (gnmr/io/journal.h has that).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gnmr/io/line_writer.h"

namespace gnmr::run {

/// One optimizer step.
struct TrainLine {
  std::int64_t step = 0;
  double loss = 0;
  double lr = 0;
  double grad_norm = 0;                       // before clipping
  double clip = 1;                            // what the gradient was multiplied with
  bool applied = true;                        // false: the update was skipped
  std::int64_t tokens = 0;                    // of this step
  std::optional<double> seconds = 0;          // that it took; absent only in files of other programs
  std::optional<std::int64_t> recovered = 0;  // units in recovery in this step; likewise
  std::int64_t high = 0;                      // all units that ran high in this step, forced ones included
  // Of `recovered`, the units in standing recovery; unit passes of reruns in high precision, besides `recovered`.
  std::optional<std::int64_t> standing = {};    // absent in files of earlier versions
  std::optional<std::int64_t> rerun_high = {};  // likewise
  // Multiply-adds of units in high precision, for any reason and in all passes, in those of one pass of all units.
  std::optional<double> high_cost = {};    // likewise
  std::optional<bool> rule_acted = {};     // whether the rule of a rival changed the update; absent without one
  std::optional<std::int64_t> batch = {};  // where it has another number than the step: a batch was held (lag 1)

  bool operator==(const TrainLine&) const = default;
};

/// One evaluation on held-out data, after the update of `step`.
struct EvalLine {
  std::int64_t step = 0;
  std::optional<double> loss_high = {};     // all units in high precision
  std::optional<double> loss_low = {};      // all units on their low path
  std::optional<double> loss_trained = {};  // each unit on the path of the last step; absent in earlier versions

  bool operator==(const EvalLine&) const = default;
};

/// Appends the line of a step, or of an evaluation.
void append_line(std::string& out, const TrainLine& line);
void append_line(std::string& out, const EvalLine& line);

/// Where and how to write.
struct MetricsSettings {
  std::string path;
  io::ExistingFile existing = io::ExistingFile::refuse;
  std::int64_t resume_step = 1;                     // the next step, where a file is resumed
  std::size_t queue_bytes = std::size_t{4} << 20U;  // of lines that wait for the disk
};

/// Writes lines in the background.
class MetricsWriter : public io::LineWriter {
 public:
  /// Opens the file; an `Error` where that fails. A resumed file that has lines gets a `resume` line.
  explicit MetricsWriter(const MetricsSettings& settings);

  /// Adds a step.
  void write(const TrainLine& line) { append(line); }

  /// Adds an evaluation.
  void write(const EvalLine& line) { append(line); }
};

/// All of a file, by ascending steps.
struct Metrics {
  std::vector<TrainLine> train = {};
  std::vector<EvalLine> evals = {};
  std::vector<std::int64_t> resumes = {};  // the next step of each, in the order of the file
  std::uint64_t dropped = 0;               // lines that the writer could not write
  bool torn = false;                       // the file ended within a line, which is skipped
};

/// Reads a file. A `resume` line drops all steps from its own on that stand before it, and the last line of a step
/// counts. Kinds and keys that are not known are skipped; any other damage is an `Error` with file and line.
Metrics read_metrics(const std::string& path);

}  // namespace gnmr::run

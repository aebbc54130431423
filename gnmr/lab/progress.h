// SPDX-License-Identifier: Apache-2.0
// How far a run is, read from its metrics.jsonl while it writes.
//
// Goals: only what is new is read; a line that is not whole yet waits; nothing that the file holds is an error.
// Non-goals: all figures of a step (gnmr/run/metrics.h reads a run that is over).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace gnmr::lab {

/// One step of a run that goes on.
struct ProgressPoint {
  std::int64_t step = 0;
  std::int64_t newest_batch = 0;  // so far; smaller where held batches came again
  double loss = 0;
  std::int64_t recovered = 0;
};

/// Follows one file.
class ProgressFollower {
 public:
  explicit ProgressFollower(std::string path) : path_(std::move(path)) {}

  /// Reads what has come since the last call; whether anything has. A file that is not there has nothing.
  bool update();

  /// The steps so far, ascending; those that a resumed run repeats count once.
  const std::vector<ProgressPoint>& points() const { return points_; }

 private:
  void take(const std::string& line);
  void forget_from(std::int64_t step);

  std::string path_;
  std::size_t read_ = 0;  // bytes
  std::string rest_;      // of a line that is not whole
  std::vector<ProgressPoint> points_;
};

}  // namespace gnmr::lab

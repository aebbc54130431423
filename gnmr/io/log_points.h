// SPDX-License-Identifier: Apache-2.0
// Logs that are a heap of points (unit, step, value) and become rows only when all of them are known.
//
// Goals: units that are written at different times, or one after the other, still meet in one row; a restart of the
// run drops what it overtakes in every unit. Non-goals: constant memory (it holds about 24 bytes per point).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "gnmr/io/trace.h"

namespace gnmr::io {

/// Collects points and turns them into a trace.
class PointLog {
 public:
  explicit PointLog(bool allow_restart) : allow_restart_(allow_restart) {}

  /// Adds a norm. `where` is for messages: a negative norm, a name that cannot be one, or a step of a unit that does
  /// not come after its last is an `Error`; with `allow_restart` the last drops all earlier points from that step on.
  void add(std::string_view unit, std::int64_t step, double norm, std::string_view where);

  /// Whether nothing has been added.
  bool empty() const { return units_.empty(); }

  /// Turns the order of the units round: for logs that list them as the backward pass meets them.
  void reverse_units();

  /// Leaves out norms of the whole model (`is_total_norm`) where there are norms of its parts; a note names them.
  void leave_out_totals();

  /// Adds a note for the user.
  void note(std::string text) { notes_.push_back(std::move(text)); }

  /// The trace; `bytes` is the size of what was read. The log is empty afterwards.
  std::unique_ptr<TraceReader> finish(std::uint64_t bytes);

 private:
  struct Point {
    std::int64_t step;
    double norm;
  };
  struct UnitPoints {
    std::string name;
    std::vector<Point> points;  // steps strictly increasing
    std::uint64_t restarts_seen = 0;
  };
  struct Restart {
    std::uint64_t number;
    std::int64_t step;
  };

  std::size_t index_of(std::string_view unit, std::string_view where);
  void trim(UnitPoints& unit);

  bool allow_restart_;
  std::vector<UnitPoints> units_;
  std::unordered_map<std::string, std::size_t> index_;
  std::vector<Restart> restarts_;  // only those that no later one undercuts: steps increase
  std::uint64_t restart_count_ = 0;
  std::uint64_t dropped_ = 0;
  std::vector<std::string> notes_;
};

}  // namespace gnmr::io

// SPDX-License-Identifier: Apache-2.0
// A picture of a run in characters: units down, steps across, the colour says how far a unit is from its mean; below
// it the units in recovery, under the budget line.
//
// Goals: a run of any length in constant memory (when the columns are full, neighbours are merged); readable without
// colour. Non-goals: writing to a terminal (live_view.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "gnmr/core/controller.h"

namespace gnmr::app {

/// How large the picture may be, and whether it may use colour.
struct HeatMapStyle {
  std::size_t columns = 80;  // of characters, labels included
  std::size_t unit_rows = 24;
  bool color = false;
};

/// Gathers steps and draws them.
class HeatMap {
 public:
  /// With fewer columns than this its lines are wider than they should be.
  static constexpr std::size_t kFewestColumns = 64;

  HeatMap(const Controller& controller, const HeatMapStyle& style);

  /// Adds the controller's last step.
  void add(const Controller& controller, const Decision& decision);

  /// The picture so far, each line with its line end.
  std::string draw() const;

  /// Lines that `draw` gives.
  std::size_t line_count() const;

 private:
  struct Cell {
    float log2_ratio = 0;  // the one farthest from 0
    bool sampled = false;
    bool non_finite = false;
    bool recovered = false;
  };
  struct Column {
    std::int64_t first_step = 0;
    std::uint32_t peak = 0;  // units in recovery
    bool common = false;
    std::vector<Cell> cells;
  };

  static void merge(Cell& into, const Cell& from);
  static void merge(Column& into, const Column& from);
  std::size_t row_of(std::size_t unit) const { return unit * rows_ / units_; }
  void halve();
  void append_cell(std::string& out, const Cell& cell) const;
  void append_units(std::string& out) const;
  void append_budget(std::string& out) const;
  void append_axis(std::string& out) const;

  HeatMapStyle style_;
  std::size_t units_;
  std::size_t rows_;
  std::size_t capacity_;
  std::uint32_t budget_;
  std::vector<std::string> labels_;
  std::size_t stride_ = 1;  // steps to a column
  std::size_t in_last_ = 0;
  std::vector<Column> columns_;
  std::vector<std::uint8_t> was_recovered_;  // the step ran with these
  std::int64_t last_step_ = 0;
};

}  // namespace gnmr::app

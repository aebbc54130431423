// SPDX-License-Identifier: Apache-2.0
#include "gnmr/io/log_points.h"

#include <algorithm>
#include <utility>

#include "gnmr/io/json_text.h"
#include "gnmr/io/log_fields.h"
#include "gnmr/io/row_source.h"
#include "gnmr/io/text_error.h"

namespace gnmr::io {
namespace {

struct PlacedPoint {
  std::int64_t step;
  std::uint32_t unit;
  double norm;
};

class PointReader final : public TraceReader {
 public:
  PointReader(std::vector<std::string> units, std::vector<PlacedPoint> points, std::vector<std::string> notes,
              std::uint64_t bytes)
      : units_(std::move(units)),
        points_(std::move(points)),
        notes_(std::move(notes)),
        bytes_(bytes),
        norms_(units_.size()),
        sampled_(units_.size()) {}

  const std::vector<std::string>& units() const override { return units_; }

  bool next(TraceRow& row) override {
    for (std::size_t i = row_begin_; i < row_end_; ++i) {
      norms_[points_[i].unit] = 0;
      sampled_[points_[i].unit] = 0;
    }
    row_begin_ = row_end_;
    if (row_begin_ == points_.size()) return false;
    row.step = points_[row_begin_].step;
    for (; row_end_ < points_.size() && points_[row_end_].step == row.step; ++row_end_) {
      norms_[points_[row_end_].unit] = points_[row_end_].norm;
      sampled_[points_[row_end_].unit] = 1;
    }
    row.norms = norms_;
    row.sampled = sampled_;
    return true;
  }

  std::uint64_t bytes_read() const override { return bytes_; }
  std::uint64_t bytes_total() const override { return bytes_; }
  std::vector<std::string> notes() const override { return notes_; }

 private:
  std::vector<std::string> units_;
  std::vector<PlacedPoint> points_;  // by step
  std::vector<std::string> notes_;
  std::uint64_t bytes_;
  std::vector<double> norms_;
  std::vector<std::uint8_t> sampled_;
  std::size_t row_begin_ = 0;
  std::size_t row_end_ = 0;
};

}  // namespace

std::size_t PointLog::index_of(std::string_view unit, std::string_view where) {
  const auto [found, added] = index_.try_emplace(std::string(unit), units_.size());
  if (!added) return found->second;
  if (unit.empty()) throw error_at(where, "a unit without a name");
  if (!is_utf8(unit)) throw error_at(where, "the name " + in_quotes(unit) + " is not UTF-8");
  units_.push_back({.name = std::string(unit), .points = {}, .restarts_seen = restart_count_});
  return found->second;
}

// Each unit is brought up to date when it is next used, so that a restart costs nothing for the units that it does not
// touch; all its points are older than the restarts that it has not seen.
void PointLog::trim(UnitPoints& unit) {
  const auto unseen =
      std::lower_bound(restarts_.begin(), restarts_.end(), unit.restarts_seen,
                       [](const Restart& restart, std::uint64_t number) { return restart.number < number; });
  unit.restarts_seen = restart_count_;
  if (unseen == restarts_.end()) return;
  while (!unit.points.empty() && unit.points.back().step >= unseen->step) {
    unit.points.pop_back();
    ++dropped_;
  }
}

void PointLog::add(std::string_view unit_name, std::int64_t step, double norm, std::string_view where) {
  check_norm(norm, where);
  UnitPoints& unit = units_[index_of(unit_name, where)];
  trim(unit);
  if (!unit.points.empty() && step <= unit.points.back().step) {
    if (!allow_restart_) {
      throw error_at(where, "step " + std::to_string(step) + " of " + in_quotes(unit_name) +
                                " does not come after step " + std::to_string(unit.points.back().step) +
                                " (the log of a resumed run can be read with --allow-restart)");
    }
    while (!restarts_.empty() && restarts_.back().step >= step) restarts_.pop_back();
    restarts_.push_back({restart_count_++, step});
    trim(unit);
  }
  unit.points.push_back({step, norm});
}

void PointLog::reverse_units() {
  std::reverse(units_.begin(), units_.end());
  for (std::size_t i = 0; i < units_.size(); ++i) index_[units_[i].name] = i;
}

void PointLog::leave_out_totals() {
  const auto is_total = [](const UnitPoints& unit) { return is_total_norm(unit.name); };
  if (std::all_of(units_.begin(), units_.end(), is_total)) return;
  for (const UnitPoints& unit : units_) {
    if (is_total(unit)) note("left out " + unit.name + ", the norm of the whole model; --fields chooses");
  }
  std::erase_if(units_, is_total);
  index_.clear();
  for (std::size_t i = 0; i < units_.size(); ++i) index_[units_[i].name] = i;
}

std::unique_ptr<TraceReader> PointLog::finish(std::uint64_t bytes) {
  std::vector<std::string> names;
  std::vector<PlacedPoint> placed;
  for (UnitPoints& unit : units_) {
    trim(unit);
    const auto index = static_cast<std::uint32_t>(names.size());
    for (const Point& point : unit.points) placed.push_back({point.step, index, point.norm});
    names.push_back(std::move(unit.name));
    unit.points = {};
  }
  std::sort(placed.begin(), placed.end(), [](const PlacedPoint& a, const PlacedPoint& b) { return a.step < b.step; });
  if (dropped_ > 0) {
    notes_.push_back(counted(dropped_, "value") + " dropped: the run was resumed from an earlier step");
  }
  return std::make_unique<PointReader>(std::move(names), std::move(placed), std::move(notes_), bytes);
}

}  // namespace gnmr::io

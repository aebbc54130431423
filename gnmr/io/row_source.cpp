// SPDX-License-Identifier: Apache-2.0
#include "gnmr/io/row_source.h"

#include <optional>
#include <utility>

#include "gnmr/io/text_error.h"

namespace gnmr::io {
namespace {

class StrictReader : public TraceReader {
 public:
  explicit StrictReader(std::unique_ptr<RowSource> rows) : rows_(std::move(rows)) {}

  const std::vector<std::string>& units() const override { return rows_->units(); }

  bool next(TraceRow& row) override {
    if (!rows_->next(row)) return false;
    if (last_step_ && row.step <= *last_step_) {
      throw error_at(rows_->where(), "step " + std::to_string(row.step) + " does not come after step " +
                                         std::to_string(*last_step_) +
                                         " (the log of a resumed run can be read with --allow-restart)");
    }
    last_step_ = row.step;
    return true;
  }

  std::uint64_t bytes_read() const override { return rows_->bytes_read(); }
  std::uint64_t bytes_total() const override { return rows_->bytes_total(); }
  std::vector<std::string> notes() const override { return rows_->notes(); }

 private:
  std::unique_ptr<RowSource> rows_;
  std::optional<std::int64_t> last_step_;
};

// A row is dropped if some later row has its step or an earlier one. The first such row is always one whose step does
// not come after that of the row just before it, so only those few are kept from the first pass; and of these only the
// ones that no later one undercuts, so their steps increase.
class RestartReader : public TraceReader {
 public:
  explicit RestartReader(std::unique_ptr<RowSource> rows) : rows_(std::move(rows)) {
    if (!rows_->can_rewind()) {
      throw Error("--allow-restart reads a trace twice, so it needs a file and not standard input");
    }
    find_restarts();
    rows_->rewind();
  }

  const std::vector<std::string>& units() const override { return rows_->units(); }

  bool next(TraceRow& row) override {
    while (rows_->next(row)) {
      while (ahead_ < restarts_.size() && restarts_[ahead_].row <= row_) ++ahead_;
      ++row_;
      if (ahead_ == restarts_.size() || row.step < restarts_[ahead_].step) return true;
      ++dropped_;
    }
    return false;
  }

  std::uint64_t bytes_read() const override { return rows_->bytes_read(); }
  std::uint64_t bytes_total() const override { return rows_->bytes_total(); }

  std::vector<std::string> notes() const override {
    std::vector<std::string> notes = rows_->notes();
    if (dropped_ > 0) notes.push_back(counted(dropped_, "row") + " dropped: the run was resumed from an earlier step");
    return notes;
  }

 private:
  struct Restart {
    std::uint64_t row;
    std::int64_t step;
  };

  void find_restarts() {
    TraceRow row;
    std::optional<std::int64_t> last;
    try {
      for (std::uint64_t index = 0; rows_->next(row); ++index) {
        if (last && row.step <= *last) {
          while (!restarts_.empty() && restarts_.back().step >= row.step) restarts_.pop_back();
          restarts_.push_back({index, row.step});
        }
        last = row.step;
      }
    } catch (const Error&) {
      // The second pass meets the same error, after the rows before it have been given.
    }
  }

  std::unique_ptr<RowSource> rows_;
  std::vector<Restart> restarts_;
  std::size_t ahead_ = 0;
  std::uint64_t row_ = 0;
  std::uint64_t dropped_ = 0;
};

}  // namespace

std::unique_ptr<TraceReader> in_step_order(std::unique_ptr<RowSource> rows, bool allow_restart) {
  if (allow_restart) return std::make_unique<RestartReader>(std::move(rows));
  return std::make_unique<StrictReader>(std::move(rows));
}

}  // namespace gnmr::io

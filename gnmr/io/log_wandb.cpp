// SPDX-License-Identifier: Apache-2.0
#include "gnmr/io/log_wandb.h"

#include <algorithm>
#include <string>
#include <unordered_set>
#include <utility>

#include "gnmr/io/csv_trace.h"
#include "gnmr/io/json_text.h"
#include "gnmr/io/line_reader.h"
#include "gnmr/io/log_fields.h"
#include "gnmr/io/number_text.h"
#include "gnmr/io/text_error.h"

namespace gnmr::io {
namespace {

constexpr std::string_view kLowest = "__MIN";
constexpr std::string_view kHighest = "__MAX";
constexpr std::string_view kRunEnd = " - ";

bool is_envelope(std::string_view name) { return name.ends_with(kLowest) || name.ends_with(kHighest); }

bool is_step_name(std::string_view name) {
  std::string lower(name);
  std::transform(lower.begin(), lower.end(), lower.begin(), to_lower);
  const std::vector<std::string>& usual = usual_step_fields();
  return std::find(usual.begin(), usual.end(), lower) != usual.end();
}

// A run's name may hold anything, `grad_norm` too; the metric is what follows it.
std::string_view metric_of(std::string_view column) {
  const std::size_t run_end = column.rfind(kRunEnd);
  return run_end == std::string_view::npos ? column : column.substr(run_end + kRunEnd.size());
}

class WandbLog final : public RowSource {
 public:
  WandbLog(std::unique_ptr<ByteSource> source, const TraceOptions& options)
      : source_(std::move(source)), pattern_(options.field_pattern) {
    if (!next_csv_record(source_->name(), lines_, cells_)) throw Error(source_->name() + ": the file is empty");
    columns_ = cells_.size();
    find_step_column(options.step_field);
    find_units();
    norms_.resize(units_.size());
    sampled_.resize(units_.size());
  }

  const std::vector<std::string>& units() const override { return units_; }

  bool next(TraceRow& row) override {
    while (next_csv_record(source_->name(), lines_, cells_)) {
      line_ = cells_.front().line;
      if (cells_.size() != columns_) {
        fail(std::min(cells_.size(), columns_),
             "the row has " + counted(cells_.size(), "cell") + ", the header " + std::to_string(columns_));
      }
      if (!take_norms()) {
        ++without_norm_;
        continue;
      }
      const std::string& step = cells_[step_column_].text;
      if (!parse_whole_value(step, row.step))
        fail(step_column_ + 1, in_quotes(step) + " is not a step, a whole number");
      row.norms = norms_;
      row.sampled = sampled_;
      return true;
    }
    return false;
  }

  bool can_rewind() const override { return source_->can_rewind(); }

  void rewind() override {
    lines_.rewind();
    next_csv_record(source_->name(), lines_, cells_);
    without_norm_ = 0;
  }

  std::string where() const override { return at_cell(source_->name(), line_, step_column_ + 1); }
  std::uint64_t bytes_read() const override { return source_->bytes_read(); }
  std::uint64_t bytes_total() const override { return source_->bytes_total(); }

  std::vector<std::string> notes() const override {
    if (without_norm_ == 0) return {};
    return {counted(without_norm_, "row") + " had no gradient norm"};
  }

 private:
  void find_step_column(const std::string& wanted) {
    const auto found = std::find_if(cells_.begin(), cells_.end(), [&](const CsvCell& cell) {
      return wanted.empty() ? is_step_name(cell.text) : cell.text == wanted;
    });
    if (found == cells_.end() && !wanted.empty()) {
      throw error_at(at_line(source_->name(), lines_.line_number()), "no column " + in_quotes(wanted));
    }
    // The axis of a chart comes first, whatever it is called.
    step_column_ = found == cells_.end() ? 0 : static_cast<std::size_t>(found - cells_.begin());
  }

  void find_units() {
    FieldNames fields;
    std::unordered_set<std::string_view> seen;
    for (std::size_t column = 0; column < cells_.size(); ++column) {
      const std::string& name = cells_[column].text;
      if (!is_envelope(name)) fields.add(name);
      const bool fits = pattern_.matches(metric_of(name)) || (!pattern_.is_default() && pattern_.matches(name));
      if (column == step_column_ || is_envelope(name) || !fits) continue;
      line_ = cells_[column].line;
      if (!is_utf8(name)) fail(column + 1, "the name " + in_quotes(name) + " is not UTF-8");
      if (name.empty()) fail(column + 1, "a unit without a name");
      if (!seen.insert(name).second) fail(column + 1, "the name " + in_quotes(name) + " is there twice");
      unit_columns_.push_back(column);
      units_.push_back(name);
    }
    if (units_.empty()) throw no_norms_error(source_->name(), "this export of Weights & Biases", fields, pattern_);
  }

  bool take_norms() {
    bool any = false;
    for (std::size_t unit = 0; unit < units_.size(); ++unit) {
      const std::size_t column = unit_columns_[unit];
      const std::string& text = cells_[column].text;
      double norm = 0;
      const bool is_number = parse_number(text, norm);
      if (!is_number && !text.empty()) fail(column + 1, in_quotes(text) + " is not a number");
      if (norm < 0) fail(column + 1, "the norm " + text + " is negative");
      norms_[unit] = norm;
      sampled_[unit] = is_number ? 1 : 0;
      any = any || is_number;
    }
    return any;
  }

  [[noreturn]] void fail(std::size_t column, const std::string& what) const {
    throw error_at(at_cell(source_->name(), line_, column), what);
  }

  std::unique_ptr<ByteSource> source_;
  FieldPattern pattern_;
  LineReader lines_{*source_};
  std::vector<CsvCell> cells_;
  std::size_t columns_ = 0;
  std::size_t step_column_ = 0;
  std::vector<std::string> units_;
  std::vector<std::size_t> unit_columns_;
  std::vector<double> norms_;
  std::vector<std::uint8_t> sampled_;
  std::uint64_t line_ = 0;
  std::uint64_t without_norm_ = 0;
};

}  // namespace

bool is_wandb_header(const std::vector<CsvCell>& header) {
  if (header.size() < 2) return false;
  const std::string_view first = header.front().text;
  if (first != kStepColumn && is_step_name(first)) return true;
  std::unordered_set<std::string_view> names;
  for (const CsvCell& cell : header) names.insert(cell.text);
  if (first != kStepColumn && names.contains("_step")) return true;
  return std::any_of(header.begin(), header.end(), [&](const CsvCell& cell) {
    return names.contains(cell.text + std::string(kLowest)) && names.contains(cell.text + std::string(kHighest));
  });
}

std::unique_ptr<RowSource> make_wandb_log(std::unique_ptr<ByteSource> source, const TraceOptions& options) {
  return std::make_unique<WandbLog>(std::move(source), options);
}

}  // namespace gnmr::io

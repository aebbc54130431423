// SPDX-License-Identifier: Apache-2.0
#include "gnmr/io/log_wandb.h"

#include <algorithm>
#include <string>
#include <unordered_set>
#include <utility>

#include "gnmr/core/message_text.h"
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
constexpr std::string_view kNoRun = "(no run)";  // what columns without the name of a run belong to

bool is_envelope(std::string_view name) { return name.ends_with(kLowest) || name.ends_with(kHighest); }

bool is_step_name(std::string_view name) {
  std::string lower(name);
  std::transform(lower.begin(), lower.end(), lower.begin(), to_lower);
  const std::vector<std::string>& usual = usual_step_fields();
  return std::find(usual.begin(), usual.end(), lower) != usual.end();
}

// A column of a chart: `RUN - METRIC`. A run's name may hold anything, `grad_norm` too; the metric is what follows it.
struct ChartColumn {
  std::string_view run;
  std::string_view metric;
};

ChartColumn chart_column(std::string_view column) {
  const std::size_t run_end = column.rfind(kRunEnd);
  if (run_end == std::string_view::npos) return {kNoRun, column};
  if (run_end == 0) return {kNoRun, column.substr(kRunEnd.size())};
  return {column.substr(0, run_end), column.substr(run_end + kRunEnd.size())};
}

// The history of one run has the columns that Weights & Biases adds to each, and no names of runs.
bool is_history(const std::vector<CsvCell>& header) {
  return std::any_of(header.begin(), header.end(), [](const CsvCell& cell) {
    return cell.text == "_step" || cell.text == "_runtime" || cell.text == "_timestamp";
  });
}

/// The columns with gradient norms.
struct NormColumns {
  struct Column {
    std::size_t index;
    std::string run;
    std::string unit;
  };
  std::vector<Column> columns;
  std::vector<std::string> runs;  // in the order of the columns
  FieldNames fields;
};

NormColumns find_norm_columns(const std::vector<CsvCell>& header, std::size_t step_column,
                              const FieldPattern& pattern) {
  NormColumns found;
  const bool history = is_history(header);
  std::unordered_set<std::string> runs;
  for (std::size_t index = 0; index < header.size(); ++index) {
    const std::string& name = header[index].text;
    if (index != step_column && is_envelope(name)) continue;
    found.fields.add(name);
    const ChartColumn column = chart_column(name);
    const bool fits = pattern.matches(column.metric) || (!pattern.is_default() && pattern.matches(name));
    if (index == step_column || !fits) continue;
    const std::string run(history ? kNoRun : column.run);
    found.columns.push_back({index, run, history ? name : std::string(column.metric)});
    if (runs.insert(run).second) found.runs.push_back(run);
  }
  return found;
}

std::string listed(const std::vector<std::string>& runs) {
  FieldNames names;
  for (const std::string& run : runs) names.add(run);
  return names.list();
}

std::size_t wandb_step_column(const std::string& where, const std::vector<CsvCell>& header, const std::string& wanted) {
  const auto found = std::find_if(header.begin(), header.end(), [&](const CsvCell& cell) {
    return wanted.empty() ? is_step_name(cell.text) : cell.text == wanted;
  });
  if (found == header.end() && !wanted.empty()) throw error_at(where, "no column " + in_quotes(wanted));
  // The axis of a chart comes first, whatever it is called.
  return found == header.end() ? 0 : static_cast<std::size_t>(found - header.begin());
}

class WandbLog final : public RowSource {
 public:
  WandbLog(std::unique_ptr<ByteSource> source, const TraceOptions& options)
      : source_(std::move(source)), pattern_(options.field_pattern) {
    if (!next_csv_record(source_->name(), lines_, cells_)) throw Error(source_->name() + ": the file is empty");
    columns_ = cells_.size();
    find_step_column(options.step_field);
    find_units(options.run);
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
    step_column_ = wandb_step_column(at_line(source_->name(), lines_.line_number()), cells_, wanted);
  }

  void find_units(const std::string& run) {
    const NormColumns found = find_norm_columns(cells_, step_column_, pattern_);
    if (found.columns.empty()) {
      throw no_norms_error(source_->name(), "this export of Weights & Biases", found.fields, pattern_);
    }
    const bool named = !run.empty();
    if (named && std::find(found.runs.begin(), found.runs.end(), run) == found.runs.end()) {
      throw Error(source_->name() + ": no run " + in_quotes(run) +
                  " with gradient norms; there are: " + listed(found.runs) + did_you_mean(run, found.runs));
    }
    if (!named && found.runs.size() > 1) {
      throw Error(source_->name() + ": has " + counted(found.runs.size(), "run") +
                  ", name one with --run: " + listed(found.runs));
    }
    std::unordered_set<std::string> seen;
    for (const NormColumns::Column& column : found.columns) {
      if (named && column.run != run) continue;
      const std::string& name = cells_[column.index].text;
      line_ = cells_[column.index].line;
      if (!is_utf8(name)) fail(column.index + 1, "the name " + in_quotes(name) + " is not UTF-8");
      if (column.unit.empty()) fail(column.index + 1, "a unit without a name");
      if (!seen.insert(column.unit).second) {
        fail(column.index + 1, "the name " + in_quotes(name) + " is there twice");
      }
      unit_columns_.push_back(column.index);
      units_.push_back(column.unit);
    }
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

std::vector<std::string> wandb_runs(ByteSource& source, const TraceOptions& options) {
  LineReader lines(source);
  std::vector<CsvCell> header;
  if (!next_csv_record(source.name(), lines, header)) return {};
  const std::size_t step = wandb_step_column(at_line(source.name(), lines.line_number()), header, options.step_field);
  return find_norm_columns(header, step, FieldPattern(options.field_pattern)).runs;
}

std::unique_ptr<RowSource> make_wandb_log(std::unique_ptr<ByteSource> source, const TraceOptions& options) {
  return std::make_unique<WandbLog>(std::move(source), options);
}

}  // namespace gnmr::io

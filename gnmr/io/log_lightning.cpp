// SPDX-License-Identifier: Apache-2.0
#include "gnmr/io/log_lightning.h"

#include <algorithm>
#include <string>

#include "gnmr/io/csv_trace.h"
#include "gnmr/io/json_text.h"
#include "gnmr/io/line_reader.h"
#include "gnmr/io/log_fields.h"
#include "gnmr/io/log_points.h"
#include "gnmr/io/number_text.h"
#include "gnmr/io/row_source.h"
#include "gnmr/io/text_error.h"

namespace gnmr::io {
namespace {

constexpr std::string_view kLightningMetrics = "this metrics.csv of Lightning";
constexpr std::string_view kHint =
    "In on_before_optimizer_step, self.log_dict(grad_norm(self, norm_type=2)) logs them, with grad_norm of "
    "lightning.pytorch.utilities";

// `..._epoch` is the mean of `..._step` over an epoch.
bool is_mean_of_epoch(std::string_view name) { return name.ends_with("_epoch"); }

std::size_t find_column(const std::vector<CsvCell>& header, std::string_view name) {
  const auto found = std::find_if(header.begin(), header.end(), [&](const CsvCell& cell) { return cell.text == name; });
  return static_cast<std::size_t>(found - header.begin());
}

class LightningColumns {
 public:
  LightningColumns(const std::string& file, const std::vector<CsvCell>& header, const TraceOptions& options)
      : file_(file), count_(header.size()), pattern_(options.field_pattern) {
    const std::string wanted = options.step_field.empty() ? std::string(kStepColumn) : options.step_field;
    step_ = find_column(header, wanted);
    if (step_ == count_) throw error_at(at_line(file, 1), "no column " + in_quotes(wanted));
    for (std::size_t column = 0; column < count_; ++column) {
      const std::string& name = header[column].text;
      fields_.add(name);
      if (column == step_ || !pattern_.matches(name)) continue;
      if (pattern_.is_default() && is_mean_of_epoch(name)) continue;
      units_.push_back({column, name});
    }
    if (units_.empty()) throw no_norms();
  }

  // False where the row has no norm.
  bool add_row(const std::vector<CsvCell>& cells, PointLog& log) const {
    const std::uint64_t line = cells.front().line;
    if (cells.size() != count_) {
      throw error_at(at_cell(file_, line, std::min(cells.size(), count_)),
                     "the row has " + counted(cells.size(), "cell") + ", the header " + std::to_string(count_));
    }
    bool any = false;
    for (const Unit& unit : units_) {
      const std::string& text = cells[unit.column].text;
      if (text.empty()) continue;
      double norm = 0;
      const std::string where = at_cell(file_, line, unit.column + 1);
      if (!parse_number(text, norm)) throw error_at(where, in_quotes(text) + " is not a number");
      std::int64_t step = 0;
      if (!parse_whole_value(cells[step_].text, step)) {
        throw error_at(at_cell(file_, line, step_ + 1),
                       in_quotes(cells[step_].text) + " is not a step, a whole number");
      }
      log.add(unit.name, step, norm, where);
      any = true;
    }
    return any;
  }

  NoNormsError no_norms() const { return no_norms_error(file_, kLightningMetrics, fields_, pattern_, kHint); }
  std::size_t count() const { return count_; }
  bool is_default() const { return pattern_.is_default(); }

 private:
  struct Unit {
    std::size_t column;
    std::string name;
  };

  const std::string& file_;
  std::size_t count_;
  FieldPattern pattern_;
  FieldNames fields_;
  std::size_t step_ = 0;
  std::vector<Unit> units_;
};

}  // namespace

bool is_lightning_header(const std::vector<CsvCell>& header) {
  const std::size_t step = find_column(header, kStepColumn);
  if (header.size() < 2 || step == header.size()) return false;
  return step > 0 || find_column(header, "epoch") < header.size();
}

std::unique_ptr<TraceReader> read_lightning_csv(ByteSource& source, const TraceOptions& options) {
  LineReader lines(source);
  std::vector<CsvCell> cells;
  if (!next_csv_record(source.name(), lines, cells)) throw Error(source.name() + ": the file is empty");
  const LightningColumns columns(source.name(), cells, options);
  PointLog log(options.allow_restart);
  std::uint64_t without_norm = 0;
  bool torn = false;
  while (next_csv_record(source.name(), lines, cells)) {
    // A run that was stopped while it wrote.
    torn = cells.size() < columns.count() && lines.ending().empty();
    if (torn) break;
    if (!columns.add_row(cells, log)) ++without_norm;
  }
  if (log.empty()) throw columns.no_norms();
  if (columns.is_default()) log.leave_out_totals();
  if (without_norm > 0) log.note(counted(without_norm, "row") + " had no gradient norm");
  if (torn) log.note("the last line is cut short and left out");
  return log.finish(source.bytes_read());
}

}  // namespace gnmr::io

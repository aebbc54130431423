// SPDX-License-Identifier: Apache-2.0
#include "gnmr/io/csv_trace.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <unordered_set>
#include <utility>

#include "gnmr/io/csv_record.h"
#include "gnmr/io/json_text.h"
#include "gnmr/io/line_reader.h"
#include "gnmr/io/number_text.h"
#include "gnmr/io/text_error.h"

namespace gnmr::io {
namespace {

class CsvTrace final : public RowSource {
 public:
  CsvTrace(std::unique_ptr<ByteSource> source, CsvCells kind) : source_(std::move(source)), kind_(kind) {
    read_header();
    norms_.resize(units_.size());
    sampled_.resize(units_.size());
  }

  const std::vector<std::string>& units() const override { return units_; }

  bool next(TraceRow& row) override {
    std::string_view line;
    do {
      if (!lines_.next(line)) return false;
    } while (is_white(line));
    line_ = lines_.line_number();
    const bool has_quote = std::memchr(line.data(), '"', line.size()) != nullptr;
    row.step = has_quote ? parse_quoted_row(line) : parse_plain_row(line);
    row.norms = norms_;
    row.sampled = sampled_;
    return true;
  }

  bool can_rewind() const override { return source_->can_rewind(); }

  void rewind() override {
    lines_.rewind();
    next_csv_record(source_->name(), lines_, cells_);
  }

  std::string where() const override { return at_cell(source_->name(), line_, 1); }
  std::uint64_t bytes_read() const override { return source_->bytes_read(); }
  std::uint64_t bytes_total() const override { return source_->bytes_total(); }

 private:
  void read_header() {
    if (!next_csv_record(source_->name(), lines_, cells_)) throw Error(source_->name() + ": the file is empty");
    line_ = cells_.front().line;
    if (cells_.front().text != kStepColumn) {
      fail(line_, 1, "the header must begin with \"step\", not " + in_quotes(cells_.front().text));
    }
    if (cells_.size() < 2) fail(line_, 1, "the header names no unit");
    std::unordered_set<std::string_view> seen;
    units_.reserve(cells_.size() - 1);
    for (std::size_t column = 1; column < cells_.size(); ++column) {
      const CsvCell& cell = cells_[column];
      if (cell.text.empty()) fail(cell.line, column + 1, "a unit without a name");
      if (!is_utf8(cell.text)) fail(cell.line, column + 1, "the name " + in_quotes(cell.text) + " is not UTF-8");
      if (!seen.insert(cell.text).second) {
        fail(cell.line, column + 1, "the name " + in_quotes(cell.text) + " is there twice");
      }
      units_.push_back(cell.text);
    }
  }

  // The common case: no quote in the row, so commas are the only structure. A number is read where it stands; only
  // cells that do not end right after it (blanks, words, faults) are looked at again.
  std::int64_t parse_plain_row(std::string_view line) {
    const char* const end = line.data() + line.size();
    const char* at = line.data();
    const char* cell_end = end_of_cell(at, end);
    const std::int64_t step = parse_step(trim_blanks({at, cell_end}), line_);
    double* const norms = norms_.data();
    std::uint8_t* const sampled = sampled_.data();
    const std::size_t count = units_.size();
    for (std::size_t unit = 0; unit < count; ++unit) {
      if (cell_end == end) fail_ragged(unit + 1);
      at = cell_end + 1;
      double value = 0;
      cell_end = at;
      if (at != end && is_digit(*at)) cell_end = scan_digits_first(at, end, value);
      const bool plain = cell_end != at && (cell_end == end || *cell_end == ',');
      if (plain && kind_ == CsvCells::norms) [[likely]] {
        norms[unit] = value;
        sampled[unit] = 1;
      } else {
        cell_end = end_of_cell(at, end);
        take_cell(trim_blanks({at, cell_end}), unit, line_);
      }
    }
    if (cell_end != end) fail_ragged(1 + count + static_cast<std::size_t>(std::count(cell_end, end, ',')));
    return step;
  }

  // A cell that begins with a digit cannot be negative; where it ends, or `at` where it needs a closer look.
  static const char* scan_digits_first(const char* at, const char* end, double& value) {
    const auto [stop, error] = std::from_chars(at, end, value);
    return error == std::errc() ? stop : at;
  }

  std::int64_t parse_quoted_row(std::string_view line) {
    split_csv_record(source_->name(), line, lines_, cells_);
    const std::int64_t step = parse_step(cells_.front().text, cells_.front().line);
    for (std::size_t unit = 0; unit < units_.size(); ++unit) {
      if (unit + 1 >= cells_.size()) fail_ragged(cells_.size());
      const CsvCell& cell = cells_[unit + 1];
      take_cell(cell.text, unit, cell.line);
    }
    if (cells_.size() != units_.size() + 1) fail_ragged(cells_.size());
    return step;
  }

  static const char* end_of_cell(const char* at, const char* end) {
    if (at == end) return end;
    const void* comma = std::memchr(at, ',', static_cast<std::size_t>(end - at));
    return comma == nullptr ? end : static_cast<const char*>(comma);
  }

  std::int64_t parse_step(std::string_view text, std::uint64_t line) const {
    std::int64_t step = 0;
    if (!parse_whole(text, step)) fail(line, 1, in_quotes(text) + " is not a step, a whole number of 64 bits");
    return step;
  }

  void take_cell(std::string_view text, std::size_t unit, std::uint64_t line) {
    const std::size_t column = unit + 2;
    double value = 0;
    const bool is_number = parse_number(text, value);
    if (kind_ == CsvCells::zero_or_one) {
      if (!is_number || (value != 0 && value != 1)) fail(line, column, in_quotes(text) + " is neither 0 nor 1");
    } else if (!is_number && !text.empty()) {
      fail(line, column, in_quotes(text) + " is not a number");
    } else if (value < 0) {
      fail(line, column, "the norm " + std::string(text) + " is negative");
    }
    norms_[unit] = value;
    sampled_[unit] = is_number ? 1 : 0;
  }

  [[noreturn]] void fail_ragged(std::size_t cells) const {
    fail(line_, std::min(cells, units_.size() + 1) + (cells > units_.size() + 1 ? 1 : 0),
         "the row has " + counted(cells, "cell") + ", the header " + std::to_string(units_.size() + 1));
  }

  [[noreturn]] void fail(std::uint64_t line, std::size_t column, const std::string& what) const {
    throw error_at(at_cell(source_->name(), line, column), what);
  }

  std::unique_ptr<ByteSource> source_;
  CsvCells kind_;
  LineReader lines_{*source_};
  std::vector<std::string> units_;
  std::vector<CsvCell> cells_;
  std::vector<double> norms_;
  std::vector<std::uint8_t> sampled_;
  std::uint64_t line_ = 0;
};

}  // namespace

std::unique_ptr<RowSource> make_csv_trace(std::unique_ptr<ByteSource> source, CsvCells cells) {
  return std::make_unique<CsvTrace>(std::move(source), cells);
}

}  // namespace gnmr::io

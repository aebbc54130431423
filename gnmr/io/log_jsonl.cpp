// SPDX-License-Identifier: Apache-2.0
#include "gnmr/io/log_jsonl.h"

#include <algorithm>
#include <limits>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "gnmr/io/json_text.h"
#include "gnmr/io/line_reader.h"
#include "gnmr/io/log_fields.h"
#include "gnmr/io/log_json.h"
#include "gnmr/io/number_text.h"
#include "gnmr/io/text_error.h"

namespace gnmr::io {
namespace {

constexpr std::size_t kNotAUnit = std::numeric_limits<std::size_t>::max();
constexpr std::size_t kNoStep = std::numeric_limits<std::size_t>::max();

// What one line says. Lines of one log mostly have the same fields in the same order, so what is known of the n-th
// field of the last line is tried first.
class LineFields final : public JsonSink {
 public:
  explicit LineFields(const TraceOptions& options) : pattern_(options.field_pattern) {
    step_fields_ = options.step_field.empty() ? usual_step_fields() : std::vector<std::string>{options.step_field};
  }

  struct Value {
    std::size_t unit;
    double norm;
    bool is_null;
  };

  // Reads a line; new units are learnt until `end_learning`.
  void read(std::string_view line) {
    values_.clear();
    step_rank_ = kNoStep;
    field_ = 0;
    scan_json(line, *this);
  }

  void end_learning() {
    learn_ = false;
    values_.clear();
    known_.clear();  // it may say of a field that it is no unit, learnt before its first number came
  }

  void scalar(std::string_view path, const JsonScalar& value) override {
    const Known& known = lookup(path);
    if (known.step_rank < step_rank_) {
      if (!parse_whole_value(value.text, step_)) throw Error("the step " + shown(value) + " is not a whole number");
      step_rank_ = known.step_rank;
    }
    if (!known.matches) return;
    double number = 0;
    const bool is_number = value.as_number(number);
    std::size_t unit = known.unit;
    if (unit == kNotAUnit && learn_ && is_number) unit = add_unit(path);
    if (unit == kNotAUnit) return;
    const bool is_null = value.kind == JsonScalar::Kind::null;
    if (!is_number && !is_null && !learn_) {
      throw Error("the field " + in_quotes(path) + " is " + shown(value) + ", not a number");
    }
    if (number < 0 && !learn_) throw Error("the norm " + shown(value) + " of " + in_quotes(path) + " is negative");
    values_.push_back({unit, number, is_null || !is_number});
  }

  const std::vector<Value>& values() const { return values_; }
  bool has_step() const { return step_rank_ != kNoStep; }
  std::int64_t step() const { return step_; }
  const std::vector<std::string>& units() const { return units_; }
  const FieldNames& fields() const { return fields_; }
  const FieldPattern& pattern() const { return pattern_; }
  const std::vector<std::string>& step_fields() const { return step_fields_; }

 private:
  struct Known {
    std::string path;
    std::size_t step_rank = kNoStep;  // place among the names of steps
    bool matches = false;
    std::size_t unit = kNotAUnit;
  };

  const Known& lookup(std::string_view path) {
    const std::size_t place = field_++;
    if (place < known_.size() && known_[place].path == path) return known_[place];
    if (place >= known_.size()) known_.resize(place + 1);
    Known& known = known_[place];
    fields_.add(path.substr(0, path.find('.')));
    const auto step_field = std::find(step_fields_.begin(), step_fields_.end(), path);
    known.path.assign(path);
    known.step_rank =
        step_field == step_fields_.end() ? kNoStep : static_cast<std::size_t>(step_field - step_fields_.begin());
    known.matches = known.step_rank == kNoStep && pattern_.matches(path);
    const auto unit = known.matches ? index_.find(known.path) : index_.end();
    known.unit = unit == index_.end() ? kNotAUnit : unit->second;
    return known;
  }

  std::size_t add_unit(std::string_view path) {
    if (path.empty()) throw Error("a unit without a name");
    if (!is_utf8(path)) throw Error("the name " + in_quotes(path) + " is not UTF-8");
    const auto [found, added] = index_.try_emplace(std::string(path), units_.size());
    if (added) units_.emplace_back(path);
    known_[field_ - 1].unit = found->second;
    return found->second;
  }

  static std::string shown(const JsonScalar& value) {
    if (value.kind == JsonScalar::Kind::null) return "null";
    return value.kind == JsonScalar::Kind::boolean ? "a truth value" : in_quotes(value.text);
  }

  FieldPattern pattern_;
  std::vector<std::string> step_fields_;
  std::vector<Known> known_;
  std::size_t field_ = 0;
  bool learn_ = true;
  std::vector<std::string> units_;
  std::unordered_map<std::string, std::size_t> index_;
  FieldNames fields_;
  std::vector<Value> values_;
  std::size_t step_rank_ = kNoStep;
  std::int64_t step_ = 0;
};

class JsonlLog final : public RowSource {
 public:
  JsonlLog(std::unique_ptr<ByteSource> source, const TraceOptions& options)
      : source_(make_rewindable(std::move(source))), fields_(options) {
    learn_units();
    fields_.end_learning();
    norms_.resize(units().size());
    sampled_.resize(units().size());
    lines_.rewind();
  }

  const std::vector<std::string>& units() const override { return fields_.units(); }

  bool next(TraceRow& row) override {
    for (const LineFields::Value& value : fields_.values()) {
      norms_[value.unit] = 0;
      sampled_[value.unit] = 0;
    }
    std::string_view line;
    while (lines_.next(line)) {
      if (is_white(line)) continue;
      if (!read_line(line)) return false;
      if (fields_.values().empty()) {
        ++without_norm_;
        continue;
      }
      fill(row);
      return true;
    }
    return false;
  }

  bool can_rewind() const override { return source_->can_rewind(); }

  void rewind() override {
    lines_.rewind();
    without_norm_ = 0;
    torn_ = false;
  }

  std::string where() const override { return at_line(source_->name(), lines_.line_number()); }
  std::uint64_t bytes_read() const override { return source_->bytes_read(); }
  std::uint64_t bytes_total() const override { return source_->bytes_total(); }

  std::vector<std::string> notes() const override {
    std::vector<std::string> notes;
    if (without_norm_ > 0) notes.push_back(counted(without_norm_, "line") + " had no gradient norm");
    if (torn_) notes.push_back("the last line is cut short and left out");
    return notes;
  }

 private:
  void learn_units() {
    std::string_view line;
    try {
      while (lines_.next(line)) {
        if (!is_white(line)) fields_.read(line);
      }
    } catch (const Error&) {
      // The second pass meets the same error and says where; it needs the units up to here.
      if (units().empty()) rethrow_with_place();
    }
    if (units().empty()) {
      throw no_norms_error(source_->name(), "this JSON Lines log", fields_.fields(), fields_.pattern());
    }
  }

  [[noreturn]] void rethrow_with_place() const {
    try {
      throw;
    } catch (const Error& error) {
      throw error_at(where(), error.what());
    }
  }

  // False where the line is the last one and has no end: a run that was stopped while it wrote.
  bool read_line(std::string_view line) {
    try {
      fields_.read(line);
    } catch (const JsonError&) {
      torn_ = lines_.ending().empty();
      if (!torn_) rethrow_with_place();
      return false;
    } catch (const Error&) {
      rethrow_with_place();
    }
    return true;
  }

  void fill(TraceRow& row) {
    if (!fields_.has_step()) {
      std::string names;
      for (const std::string& name : fields_.step_fields()) names += (names.empty() ? "" : ", ") + name;
      throw error_at(where(), "no step in this line; looked for: " + names);
    }
    for (const LineFields::Value& value : fields_.values()) {
      norms_[value.unit] = value.is_null ? 0.0 : value.norm;
      sampled_[value.unit] = value.is_null ? 0 : 1;
    }
    row.step = fields_.step();
    row.norms = norms_;
    row.sampled = sampled_;
  }

  std::unique_ptr<ByteSource> source_;
  LineReader lines_{*source_};
  LineFields fields_;
  std::vector<double> norms_;
  std::vector<std::uint8_t> sampled_;
  std::uint64_t without_norm_ = 0;
  bool torn_ = false;
};

}  // namespace

std::unique_ptr<RowSource> make_jsonl_log(std::unique_ptr<ByteSource> source, const TraceOptions& options) {
  return std::make_unique<JsonlLog>(std::move(source), options);
}

}  // namespace gnmr::io

// SPDX-License-Identifier: Apache-2.0
#include "gnmr/io/log_trainer_state.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "gnmr/io/json_text.h"
#include "gnmr/io/line_reader.h"
#include "gnmr/io/log_fields.h"
#include "gnmr/io/log_json.h"
#include "gnmr/io/log_points.h"
#include "gnmr/io/number_text.h"
#include "gnmr/io/text_error.h"

namespace gnmr::io {
namespace {

constexpr std::string_view kHistoryPrefix = "log_history.";
constexpr std::string_view kTrainerState = "this trainer_state.json";

std::string read_everything(ByteSource& source) {
  constexpr std::size_t kLeast = 4096;
  std::string text;
  for (;;) {
    if (text.size() > kMaxLineBytes) throw Error(source.name() + ": the document is too large");
    const std::size_t before = text.size();
    text.resize(before + std::max(kLeast, before));
    const std::size_t count = source.read(std::span(text).subspan(before));
    text.resize(before + count);
    if (count > 0) continue;
    if (text.starts_with(kByteOrderMark)) text.erase(0, kByteOrderMark.size());
    return text;
  }
}

class HistorySink final : public JsonSink {
 public:
  HistorySink(const std::string& file, const TraceOptions& options)
      : file_(file), pattern_(options.field_pattern), step_field_(options.step_field), log_(options.allow_restart) {}

  void scalar(std::string_view path, const JsonScalar& value) override {
    std::string_view entry;
    std::string_view field;
    if (!split_entry(path, entry, field)) {
      fields_.add(path.substr(0, path.find('.')));
      return;
    }
    entry_.assign(entry);
    entry_fields_.add(field);
    double number = 0;
    if (field == (step_field_.empty() ? std::string_view("step") : std::string_view(step_field_))) {
      std::int64_t step = 0;
      if (!parse_whole_value(value.text, step)) {
        throw Error(place() + ": the step " + in_quotes(value.text) + " is not a whole number");
      }
      step_ = step;
    } else if (pattern_.matches(field) && value.as_number(number)) {
      norms_.emplace_back(field, number);
    }
  }

  void object_end(std::string_view path) override {
    std::string_view field;
    std::string_view entry;
    if (!split_entry(std::string(path) + ".", entry, field) || !field.empty()) return;
    if (!norms_.empty() && !step_) throw Error(place() + ": has a gradient norm and no step");
    for (const auto& [name, norm] : norms_) log_.add(name, *step_, norm, place());
    norms_.clear();
    step_.reset();
  }

  PointLog& log() { return log_; }

  Error no_norms() const {
    const bool has_history = entry_fields_.list() != FieldNames().list();
    return no_norms_error(file_, has_history ? kTrainerState : "this JSON document",
                          has_history ? entry_fields_ : fields_, pattern_);
  }

 private:
  // Splits `log_history.3.loss` into the entry's number and the field.
  static bool split_entry(std::string_view path, std::string_view& entry, std::string_view& field) {
    if (!path.starts_with(kHistoryPrefix)) return false;
    path.remove_prefix(kHistoryPrefix.size());
    const std::size_t dot = path.find('.');
    if (dot == std::string_view::npos || dot == 0) return false;
    if (!std::all_of(path.begin(), path.begin() + static_cast<std::ptrdiff_t>(dot), is_digit)) return false;
    entry = path.substr(0, dot);
    field = path.substr(dot + 1);
    return true;
  }

  std::string place() const { return file_ + ": log_history[" + entry_ + "]"; }

  const std::string& file_;
  FieldPattern pattern_;
  std::string step_field_;
  PointLog log_;
  FieldNames fields_;
  FieldNames entry_fields_;
  std::string entry_;
  std::optional<std::int64_t> step_;
  std::vector<std::pair<std::string, double>> norms_;
};

}  // namespace

std::unique_ptr<TraceReader> read_trainer_state(ByteSource& source, const TraceOptions& options) {
  const std::string text = read_everything(source);
  HistorySink sink(source.name(), options);
  try {
    scan_json(text, sink);
  } catch (const JsonError& error) {
    const auto stop = text.begin() + static_cast<std::ptrdiff_t>(std::min(error.offset(), text.size()));
    const auto line = static_cast<std::uint64_t>(std::count(text.begin(), stop, '\n')) + 1;
    throw error_at(at_line(source.name(), line), error.what());
  }
  if (sink.log().empty()) throw sink.no_norms();
  return sink.log().finish(source.bytes_read());
}

}  // namespace gnmr::io

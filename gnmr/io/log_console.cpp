// SPDX-License-Identifier: Apache-2.0
#include "gnmr/io/log_console.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <string>
#include <utility>

#include "gnmr/io/console_text.h"
#include "gnmr/io/line_reader.h"
#include "gnmr/io/log_fields.h"
#include "gnmr/io/log_points.h"
#include "gnmr/io/number_text.h"
#include "gnmr/io/row_source.h"
#include "gnmr/io/text_error.h"

namespace gnmr::io {
namespace {

// Steps over the whole run, from a counter that starts again with each epoch.
class EpochSteps {
 public:
  std::int64_t step_of(std::int64_t epoch, std::int64_t step) {
    const auto [found, added] = before_.try_emplace(epoch, last_);
    // A run that was resumed in an earlier epoch counts on from there.
    if (epoch < epoch_) before_.erase(std::next(found), before_.end());
    epoch_ = epoch;
    if (__builtin_add_overflow(found->second, step, &last_)) last_ = step;
    return last_;
  }

 private:
  std::map<std::int64_t, std::int64_t> before_;
  std::int64_t epoch_ = 0;
  std::int64_t last_ = 0;
};

// Numbers for lines that have none: 1, 2, 3, and back to the first line of the same epoch where the epoch goes back, as
// in the log of a resumed run.
class LineNumbers {
 public:
  std::int64_t next(std::optional<double> epoch) {
    const double last = epochs_.empty() ? 0 : epochs_.back();
    const double now = epoch.value_or(last);
    if (now < last) epochs_.erase(std::lower_bound(epochs_.begin(), epochs_.end(), now), epochs_.end());
    epochs_.push_back(now);
    return static_cast<std::int64_t>(epochs_.size());
  }
  bool used() const { return !epochs_.empty(); }

 private:
  std::vector<double> epochs_;  // never decreasing
};

bool is_missing(std::string_view value) { return value.empty() || value == "None" || value == "N/A"; }

class ConsoleCollector {
 public:
  ConsoleCollector(const std::string& file, const ConsoleFormat& format, const TraceOptions& options)
      : file_(file),
        format_(format),
        pattern_(options.field_pattern),
        step_field_(options.step_field.empty() ? format.step_field : std::string_view(options.step_field)),
        log_(options.allow_restart) {}

  void take(const ConsoleText& text, std::uint64_t line) {
    if (rank_ && text.rank != *rank_) {
      parse_.clear();
      if (format_.parse(text.text, text.whole, parse_) == ConsoleRole::begins) ++other_ranks_;
      return;
    }
    parse_.clear();
    const ConsoleRole role = format_.parse(text.text, text.whole, parse_);
    if (role == ConsoleRole::begins) {
      begin(text.rank, line);
    } else if (role == ConsoleRole::other || text.rank != rank_of_step_) {
      open_ = false;
      return;
    }
    if (open_) add_fields();
    if (role == ConsoleRole::begins) begun();
  }

  std::unique_ptr<TraceReader> finish(std::uint64_t bytes) {
    flush(now_);
    if (log_.empty()) throw no_norms_error(file_, format_.kind, fields_, pattern_, format_.hint);
    if (pattern_.is_default()) log_.leave_out_totals();
    if (numbers_.used()) {
      log_.note("this log does not number its steps: its lines with a gradient norm are numbered from 1");
    }
    if (without_norm_ > 0) log_.note(counted(without_norm_, "step") + " had no gradient norm");
    if (cut_short_ > 0) log_.note(counted(cut_short_, "gradient norm") + " cut short left out");
    if (other_ranks_ > 0) {
      log_.note(counted(other_ranks_, "line") + " of other ranks left out; rank " + std::to_string(*rank_) + " counts");
    }
    return log_.finish(bytes);
  }

 private:
  struct Step {
    std::optional<std::int64_t> number;
    std::optional<double> epoch;
    std::uint64_t line = 0;
    bool any = false;
    std::vector<std::pair<std::string, double>> norms;
  };

  // Whether what was drawn before is a step of its own is known when the fields of this drawing have been read.
  void begin(std::int64_t rank, std::uint64_t line) {
    last_ = std::move(now_);
    now_ = Step{.number = parse_.step, .epoch = {}, .line = line, .any = true, .norms = {}};
    if (parse_.step && parse_.epoch) now_.number = epoch_steps_.step_of(*parse_.epoch, *parse_.step);
    rank_of_step_ = rank;
    open_ = true;
  }

  void begun() {
    if (format_.redrawn && last_.any && last_.number == now_.number) last_ = {};
    flush(last_);
  }

  void add_fields() {
    if (parse_.step && !now_.number) now_.number = parse_.step;
    for (const ConsoleField& field : parse_.fields) {
      fields_.add(field.name);
      double value = 0;
      if (field.name == step_field_) {
        if (!field.cut) take_step(field.value);
      } else if (field.name == "epoch") {
        if (!field.cut && parse_number(field.value, value) && std::isfinite(value)) now_.epoch = value;
      } else if (pattern_.matches(field.name)) {
        take_norm(field);
      }
    }
  }

  // A progress bar rounds: 1.23e+5 is no step.
  void take_step(std::string_view value) {
    std::int64_t step = 0;
    if (value.find_first_of("eE") != std::string_view::npos || !parse_whole_value(value, step)) return;
    now_.number = step;
  }

  void take_norm(const ConsoleField& field) {
    double norm = 0;
    if (is_missing(field.value)) return;
    if (field.cut || !parse_console_number(field.value, norm)) {
      ++cut_short_;
      return;
    }
    if (rank_of_step_ != kNoRank) rank_ = rank_of_step_;
    now_.norms.emplace_back(field.name, norm);
  }

  void flush(Step& step) {
    if (step.any && step.norms.empty()) ++without_norm_;
    if (!step.norms.empty()) {
      const std::int64_t number = step.number ? *step.number : numbers_.next(step.epoch);
      for (const auto& [name, norm] : step.norms) log_.add(name, number, norm, at_line(file_, step.line));
    }
    step = {};
  }

  const std::string& file_;
  const ConsoleFormat& format_;
  FieldPattern pattern_;
  std::string step_field_;
  PointLog log_;
  FieldNames fields_;
  ConsoleParse parse_;  // reused
  EpochSteps epoch_steps_;
  LineNumbers numbers_;
  Step last_;
  Step now_;
  bool open_ = false;
  std::int64_t rank_of_step_ = kNoRank;
  std::optional<std::int64_t> rank_;  // that of the first norm: each rank may print the same steps
  std::uint64_t without_norm_ = 0;
  std::uint64_t cut_short_ = 0;
  std::uint64_t other_ranks_ = 0;
};

}  // namespace

const ConsoleFormat* console_format(TraceFormat format) {
  const auto formats = console_formats();
  const auto found = std::find_if(formats.begin(), formats.end(),
                                  [&](const ConsoleFormat& candidate) { return candidate.format == format; });
  return found == formats.end() ? nullptr : &*found;
}

std::unique_ptr<TraceReader> read_console_log(ByteSource& source, const ConsoleFormat& format,
                                              const TraceOptions& options) {
  ConsoleCollector collector(source.name(), format, options);
  LineReader lines(source);
  ConsoleLine console_line;
  ConsoleText text;
  std::string_view line;
  while (lines.next(line)) {
    console_line.set(line, !lines.ending().empty());
    while (console_line.next(text)) collector.take(text, lines.line_number());
  }
  return collector.finish(source.bytes_read());
}

}  // namespace gnmr::io

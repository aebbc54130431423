// SPDX-License-Identifier: Apache-2.0
#include "gnmr/run/metrics.h"

#include <map>
#include <utility>

#include "gnmr/core/error.h"
#include "gnmr/io/byte_source.h"
#include "gnmr/io/json_text.h"
#include "gnmr/io/line_reader.h"
#include "gnmr/io/number_text.h"
#include "gnmr/io/text_error.h"
#include "gnmr/run/json_fields.h"

namespace gnmr::run {
namespace {

constexpr io::RecordShape kMetricsLines{};

void append_kind(std::string& out, std::string_view kind) {
  out += R"({"kind":")";
  out += kind;
  out += '"';
}

void append_field(std::string& out, std::string_view name, bool value) {
  out += ",\"";
  out += name;
  out += value ? "\":true" : "\":false";
}

template <typename Number>
void append_field(std::string& out, std::string_view name, Number value) {
  out += ",\"";
  out += name;
  out += "\":";
  io::append_json_number(out, value);
}

std::string drop_note(std::uint64_t dropped) {
  std::string line;
  append_kind(line, "note");
  append_field(line, "dropped", dropped);
  return line + ",\"text\":\"lines could not be written\"}\n";
}

// What is absent stays as it is.
void take(const Json& object, const char* key, double& value) {
  if (const auto found = object.find(key); found != object.end()) value = number_of(*found, key);
}

void take(const Json& object, const char* key, std::optional<double>& value) {
  if (const auto found = object.find(key); found != object.end()) value = number_of(*found, key);
}

void take(const Json& object, const char* key, std::int64_t& value) {
  if (const auto found = object.find(key); found != object.end()) value = whole_of(*found, key);
}

void take(const Json& object, const char* key, bool& value) {
  if (const auto found = object.find(key); found != object.end()) value = truth_of(*found, key);
}

TrainLine read_train(const Json& object) {
  TrainLine line{.step = whole_of(field(object, "step"), "step"), .loss = number_of(field(object, "loss"), "loss")};
  take(object, "lr", line.lr);
  take(object, "grad_norm", line.grad_norm);
  take(object, "clip", line.clip);
  take(object, "applied", line.applied);
  take(object, "tokens", line.tokens);
  take(object, "seconds", line.seconds);
  take(object, "recovered", line.recovered);
  take(object, "high", line.high);
  if (object.contains("batch")) take(object, "batch", line.batch.emplace());
  return line;
}

EvalLine read_eval(const Json& object) {
  EvalLine line{.step = whole_of(field(object, "step"), "step")};
  take(object, "loss_high", line.loss_high);
  take(object, "loss_low", line.loss_low);
  return line;
}

class MetricsCollector {
 public:
  void add(const Json& object) {
    const std::string kind = text_of(field(object, "kind"), "kind");
    if (kind == "train") {
      const TrainLine line = read_train(object);
      train_[line.step] = line;
    } else if (kind == "eval") {
      const EvalLine line = read_eval(object);
      evals_[line.step] = line;
    } else if (kind == "resume") {
      const std::int64_t step = whole_of(field(object, "step"), "step");
      train_.erase(train_.lower_bound(step), train_.end());
      // What was evaluated before the step in which the run went on still holds.
      evals_.erase(evals_.lower_bound(step), evals_.end());
      resumes_.push_back(step);
    } else if (kind == "note") {
      std::int64_t dropped = 0;
      take(object, "dropped", dropped);
      if (dropped > 0) dropped_ += static_cast<std::uint64_t>(dropped);
    }
  }

  Metrics result(bool torn) && {
    Metrics metrics{.resumes = std::move(resumes_), .dropped = dropped_, .torn = torn};
    for (const auto& [step, line] : train_) metrics.train.push_back(line);
    for (const auto& [step, line] : evals_) metrics.evals.push_back(line);
    return metrics;
  }

 private:
  std::map<std::int64_t, TrainLine> train_;
  std::map<std::int64_t, EvalLine> evals_;
  std::vector<std::int64_t> resumes_;
  std::uint64_t dropped_ = 0;
};

}  // namespace

MetricsWriter::MetricsWriter(const MetricsSettings& settings) {
  io::RecordFile opened = io::open_record_file(settings.path, settings.existing, kMetricsLines);
  sink_ = io::make_background_sink(
      std::move(opened.file), {.shape = kMetricsLines, .queue_bytes = settings.queue_bytes, .drop_note = drop_note});
  if (!opened.had_records) return;
  append_kind(line_, "resume");
  append_field(line_, "step", settings.resume_step);
  line_ += "}\n";
  sink_->append(line_);
}

void MetricsWriter::write(const TrainLine& line) {
  line_.clear();
  append_kind(line_, "train");
  append_field(line_, "step", line.step);
  append_field(line_, "loss", line.loss);
  append_field(line_, "lr", line.lr);
  append_field(line_, "grad_norm", line.grad_norm);
  append_field(line_, "clip", line.clip);
  append_field(line_, "applied", line.applied);
  append_field(line_, "tokens", line.tokens);
  append_field(line_, "seconds", line.seconds);
  append_field(line_, "recovered", line.recovered);
  append_field(line_, "high", line.high);
  if (line.batch) append_field(line_, "batch", *line.batch);
  line_ += "}\n";
  sink_->append(line_);
}

void MetricsWriter::write(const EvalLine& line) {
  line_.clear();
  append_kind(line_, "eval");
  append_field(line_, "step", line.step);
  if (line.loss_high) append_field(line_, "loss_high", *line.loss_high);
  if (line.loss_low) append_field(line_, "loss_low", *line.loss_low);
  line_ += "}\n";
  sink_->append(line_);
}

Metrics read_metrics(const std::string& path) {
  const std::unique_ptr<io::ByteSource> source = io::open_byte_source(path);
  io::LineReader lines(*source);
  MetricsCollector collector;
  bool torn = false;
  std::string_view line;
  while (lines.next(line)) {
    torn = !lines.ending().ends_with('\n');
    if (torn) break;
    if (io::is_white(line)) continue;
    try {
      collector.add(parse_object(line));
    } catch (const Error& error) {
      throw io::error_at(io::at_line(source->name(), lines.line_number()), error.what());
    }
  }
  return std::move(collector).result(torn);
}

}  // namespace gnmr::run

// SPDX-License-Identifier: Apache-2.0
#include "gnmr/run/metrics.h"

#include <map>
#include <utility>

#include "gnmr/io/json.h"
#include "gnmr/io/json_text.h"

namespace gnmr::run {
namespace {

struct ResumeLine {
  std::int64_t step = 0;
};

template <typename Number>
void append_if_known(std::string& out, std::string_view key, const std::optional<Number>& number) {
  if (number) io::append_json_member(out, key, *number);
}

std::string drop_note(std::uint64_t dropped) {
  std::string line = R"({"kind":"note")";
  io::append_json_member(line, "dropped", dropped);
  return line + ",\"text\":\"lines could not be written\"}\n";
}

void append_line(std::string& out, const ResumeLine& line) {
  out += R"({"kind":"resume")";
  io::append_json_member(out, "step", line.step);
  out += "}\n";
}

TrainLine read_train(const io::JsonObject& line) {
  return {.step = line.whole("step"),
          .loss = line.number("loss"),
          .lr = line.number_if("lr").value_or(0),
          .grad_norm = line.number_if("grad_norm").value_or(0),
          .clip = line.number_if("clip").value_or(1),
          .applied = line.truth_if("applied").value_or(true),
          .tokens = line.whole_if("tokens").value_or(0),
          .seconds = line.number_if("seconds"),
          .recovered = line.whole_if("recovered"),
          .high = line.whole_if("high").value_or(0),
          .standing = line.whole_if("standing"),
          .rerun_high = line.whole_if("rerun_high"),
          .high_cost = line.number_if("high_cost"),
          .rule_acted = line.truth_if("rule_acted"),
          .batch = line.whole_if("batch")};
}

EvalLine read_eval(const io::JsonObject& line) {
  return {.step = line.whole("step"),
          .loss_high = line.number_if("loss_high"),
          .loss_low = line.number_if("loss_low"),
          .loss_trained = line.number_if("loss_trained")};
}

class MetricsCollector {
 public:
  void add(const io::JsonObject& object) {
    const std::string kind = object.text("kind");
    if (kind == "train") {
      const TrainLine line = read_train(object);
      train_[line.step] = line;
    } else if (kind == "eval") {
      const EvalLine line = read_eval(object);
      evals_[line.step] = line;
    } else if (kind == "resume") {
      const std::int64_t step = object.whole("step");
      train_.erase(train_.lower_bound(step), train_.end());
      // What was evaluated before the step in which the run went on still holds.
      evals_.erase(evals_.lower_bound(step), evals_.end());
      resumes_.push_back(step);
    } else if (kind == "note") {
      dropped_ += object.count_if("dropped").value_or(0);
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

void append_line(std::string& out, const TrainLine& line) {
  out += R"({"kind":"train")";
  io::append_json_member(out, "step", line.step);
  io::append_json_member(out, "loss", line.loss);
  io::append_json_member(out, "lr", line.lr);
  io::append_json_member(out, "grad_norm", line.grad_norm);
  io::append_json_member(out, "clip", line.clip);
  io::append_json_member(out, "applied", line.applied);
  io::append_json_member(out, "tokens", line.tokens);
  append_if_known(out, "seconds", line.seconds);
  append_if_known(out, "recovered", line.recovered);
  io::append_json_member(out, "high", line.high);
  append_if_known(out, "standing", line.standing);
  append_if_known(out, "rerun_high", line.rerun_high);
  append_if_known(out, "high_cost", line.high_cost);
  append_if_known(out, "rule_acted", line.rule_acted);
  append_if_known(out, "batch", line.batch);
  out += "}\n";
}

void append_line(std::string& out, const EvalLine& line) {
  out += R"({"kind":"eval")";
  io::append_json_member(out, "step", line.step);
  append_if_known(out, "loss_high", line.loss_high);
  append_if_known(out, "loss_low", line.loss_low);
  append_if_known(out, "loss_trained", line.loss_trained);
  out += "}\n";
}

MetricsWriter::MetricsWriter(const MetricsSettings& settings)
    : LineWriter({.path = settings.path,
                  .existing = settings.existing,
                  .queue_bytes = settings.queue_bytes,
                  .drop_note = drop_note}) {
  if (had_records()) append(ResumeLine{settings.resume_step});
}

Metrics read_metrics(const std::string& path) {
  MetricsCollector collector;
  const bool torn =
      io::read_json_lines(path, io::OpenEnd::torn, [&](const io::JsonObject& line) { collector.add(line); });
  return std::move(collector).result(torn);
}

}  // namespace gnmr::run

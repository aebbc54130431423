// SPDX-License-Identifier: Apache-2.0
#include "gnmr/report/metrics_file.h"

#include <algorithm>
#include <memory>

#include "gnmr/io/byte_source.h"
#include "gnmr/io/line_reader.h"
#include "gnmr/io/number_text.h"
#include "gnmr/io/text_error.h"
#include "gnmr/report/json_document.h"

namespace gnmr::report {
namespace {

std::int64_t step_of(const JsonPlace& line) {
  const auto step = whole_at(line, "step");
  if (!step) throw io::error_at(line.where, "has no \"step\"");
  return *step;
}

void read_line(const JsonPlace& line, Metrics& metrics) {
  const std::string kind = text_at(line, "kind");
  if (kind == "train") {
    metrics.train.push_back({.step = step_of(line),
                             .loss = number_at(line, "loss"),
                             .grad_norm = number_at(line, "grad_norm"),
                             .tokens = number_at(line, "tokens"),
                             .seconds = number_at(line, "seconds"),
                             .applied = truth_at(line, "applied").value_or(true),
                             .recovered = number_at(line, "recovered")});
  } else if (kind == "eval") {
    metrics.evals.push_back(
        {.step = step_of(line), .loss_high = number_at(line, "loss_high"), .loss_low = number_at(line, "loss_low")});
  } else if (kind == "resume") {
    const std::int64_t next = step_of(line);
    // What the earlier attempt told of this step and of later ones is run again, or was never reached again.
    std::erase_if(metrics.train, [&](const TrainPoint& point) { return point.step >= next; });
    std::erase_if(metrics.evals, [&](const EvalPoint& point) { return point.step >= next; });
    metrics.resumes.push_back(next);
  } else if (kind == "note") {
    metrics.dropped += static_cast<std::uint64_t>(std::max<std::int64_t>(whole_at(line, "dropped").value_or(0), 0));
  }
}

template <typename Point>
void keep_last_of_each_step(std::vector<Point>& points) {
  std::stable_sort(points.begin(), points.end(), [](const Point& a, const Point& b) { return a.step < b.step; });
  std::size_t kept = 0;
  for (std::size_t i = 0; i < points.size(); ++i) {
    if (i + 1 < points.size() && points[i + 1].step == points[i].step) continue;
    points[kept++] = points[i];
  }
  points.resize(kept);
}

}  // namespace

Metrics read_metrics(const std::string& path) {
  Metrics metrics;
  const std::unique_ptr<io::ByteSource> source = io::open_byte_source(path);
  io::LineReader lines(*source);
  std::string_view text;
  while (lines.next(text)) {
    if (!lines.ending().ends_with('\n')) {
      metrics.torn = true;
      break;
    }
    if (io::is_white(text)) continue;
    const std::string where = io::at_line(path, lines.line_number());
    const nlohmann::json line = parse_object(text, where);
    read_line({line, where}, metrics);
  }
  keep_last_of_each_step(metrics.train);
  keep_last_of_each_step(metrics.evals);
  return metrics;
}

}  // namespace gnmr::report

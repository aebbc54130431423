// SPDX-License-Identifier: Apache-2.0
#include "gnmr/io/log_detect.h"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gnmr/core/error.h"
#include "gnmr/io/csv_record.h"
#include "gnmr/io/csv_trace.h"
#include "gnmr/io/line_reader.h"
#include "gnmr/io/log_fields.h"
#include "gnmr/io/log_json.h"
#include "gnmr/io/log_lines.h"
#include "gnmr/io/log_nvdlfw.h"
#include "gnmr/io/log_wandb.h"
#include "gnmr/io/number_text.h"
#include "gnmr/io/tensorboard_records.h"

namespace gnmr::io {
namespace {

// Console logs may begin with pages of settings before the first step.
constexpr std::size_t kEnough = std::size_t{1} << 20;
constexpr std::size_t kLeast = 4096;

constexpr std::string_view kWhite = " \t\r\n";

// The first line of `text` and what follows it; without a line feed only at the end of the file.
bool take_line(std::string_view& text, bool at_end, std::string_view& line) {
  const std::size_t feed = text.find('\n');
  if (text.empty() || (feed == std::string_view::npos && !at_end)) return false;
  line = text.substr(0, feed);
  text.remove_prefix(feed == std::string_view::npos ? text.size() : feed + 1);
  if (line.ends_with('\r')) line.remove_suffix(1);
  return true;
}

class KeySearch final : public JsonSink {
 public:
  void scalar(std::string_view path, const JsonScalar&) override {
    if (path.starts_with("log_history.")) has_history = true;
  }
  bool has_history = false;
};

// A document is laid out over several lines, or has a `log_history`; otherwise each line is an object.
std::optional<TraceFormat> detect_json(std::string_view text, bool at_end) {
  std::string_view line;
  if (!take_line(text, at_end, line)) return std::nullopt;
  KeySearch search;
  try {
    scan_json(line, search);
  } catch (const JsonError& error) {
    const bool goes_on = error.offset() >= line.size() && !text.empty();
    return goes_on || search.has_history ? TraceFormat::trainer_state : TraceFormat::jsonl;
  }
  return search.has_history ? TraceFormat::trainer_state : TraceFormat::jsonl;
}

std::optional<TraceFormat> detect_csv(std::string_view text, bool at_end) {
  std::string_view line;
  if (!take_line(text, at_end, line)) return std::nullopt;
  std::vector<CsvCell> cells;
  try {
    const auto header = memory_byte_source("header", std::string(line));
    LineReader lines(*header);
    if (!next_csv_record(header->name(), lines, cells)) return std::nullopt;
  } catch (const Error&) {
    // A quoted name may go on in the next line; the first cell decides then.
    return line.starts_with("step,") || line.starts_with("\"step\",") ? std::optional(TraceFormat::csv) : std::nullopt;
  }
  if (is_wandb_header(cells)) return TraceFormat::wandb_csv;
  if (cells.front().text == kStepColumn) return TraceFormat::csv;
  return std::nullopt;
}

std::optional<TraceFormat> detect_by_lines(std::string_view text, bool at_end) {
  FieldNames ignored;
  LogLine parsed;
  NvdlfwLine statistic;
  std::string_view line;
  while (take_line(text, at_end, line)) {
    if (parse_nvdlfw_line(line, statistic)) return TraceFormat::nvdlfw;
    if (parse_megatron_line(line, parsed, ignored) != LogLineKind::other) return TraceFormat::megatron;
    if (parse_llmc_line(line, parsed, ignored) != LogLineKind::other) return TraceFormat::llmc;
  }
  return std::nullopt;
}

std::optional<TraceFormat> detect(std::string_view text, bool at_end) {
  if (starts_with_record(text)) return TraceFormat::tensorboard;
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  const std::size_t start = text.find_first_not_of(kWhite);
  // Our own reader says best what is wrong with an empty file.
  if (start == std::string_view::npos) return at_end ? std::optional(TraceFormat::csv) : std::nullopt;
  text.remove_prefix(start);
  if (text.front() == '{') return detect_json(text, at_end);
  if (const auto format = detect_csv(text, at_end)) return format;
  return detect_by_lines(text, at_end);
}

}  // namespace

TraceFormat detect_trace_format(PeekableSource& source) {
  bool at_end = false;
  std::size_t tried = 0;
  while (!at_end && source.peeked().size() < kEnough) {
    at_end = !source.peek_more(std::max(kLeast, source.peeked().size()));
    // A pipe may give little at a time, and a long first line is not worth a look whenever it has grown a little.
    if (!at_end && source.peeked().size() < tried + tried / 2) continue;
    tried = source.peeked().size();
    if (const auto format = detect(source.peeked(), at_end)) return *format;
  }
  if (const auto format = detect(source.peeked(), true)) return *format;
  const std::string_view head = source.peeked();
  if (head.substr(0, head.find('\n')).find(',') != std::string_view::npos) return TraceFormat::csv;
  std::string names;
  for (const TraceFormatInfo& info : trace_format_names().subspan(1)) names += " " + std::string(info.name);
  throw Error(source.name() + ": not a trace or log that we know; its format can be named, one of:" + names);
}

}  // namespace gnmr::io

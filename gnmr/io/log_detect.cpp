// SPDX-License-Identifier: Apache-2.0
#include "gnmr/io/log_detect.h"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gnmr/core/error.h"
#include "gnmr/io/console_text.h"
#include "gnmr/io/csv_record.h"
#include "gnmr/io/csv_trace.h"
#include "gnmr/io/json_text.h"
#include "gnmr/io/line_reader.h"
#include "gnmr/io/log_console.h"
#include "gnmr/io/log_fields.h"
#include "gnmr/io/log_json.h"
#include "gnmr/io/log_lightning.h"
#include "gnmr/io/log_lines.h"
#include "gnmr/io/log_nvdlfw.h"
#include "gnmr/io/log_wandb.h"
#include "gnmr/io/number_text.h"
#include "gnmr/io/tensorboard_records.h"
#include "gnmr/io/text_error.h"

namespace gnmr::io {
namespace {

// Console logs may begin with pages of settings, and with progress bars of other work, before the first step.
constexpr std::size_t kEnough = std::size_t{1} << 22;
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
  if (is_lightning_header(cells)) return TraceFormat::lightning_csv;
  if (cells.front().text == kStepColumn) return TraceFormat::csv;
  return std::nullopt;
}

// Which console log it is. Libraries print into each other's logs (DeepSpeed under Megatron or Hugging Face), so the
// first line with a gradient norm decides; the first line of any format only where there is none.
class LineDetector {
 public:
  // Whether `text` decides.
  bool decides(const ConsoleText& text) {
    NvdlfwLine statistic;
    if (parse_nvdlfw_line(text.text, statistic)) return found(TraceFormat::nvdlfw, true);
    for (const ConsoleFormat& format : console_formats()) {
      parse_.clear();
      const ConsoleRole role = format.parse(text.text, text.whole, parse_);
      if (role == ConsoleRole::other || (role == ConsoleRole::more && guess_ != format.format)) continue;
      const bool has_norm = std::any_of(parse_.fields.begin(), parse_.fields.end(),
                                        [&](const ConsoleField& field) { return pattern_.matches(field.name); });
      return found(format.format, has_norm);
    }
    LogLine parsed;
    LogLineKind kind = parse_megatron_line(text.text, parsed, ignored_);
    if (kind != LogLineKind::other) return found(TraceFormat::megatron, kind == LogLineKind::step_with_norm);
    kind = parse_llmc_line(text.text, parsed, ignored_);
    return kind != LogLineKind::other && found(TraceFormat::llmc, kind == LogLineKind::step_with_norm);
  }

  std::optional<TraceFormat> guess() const { return guess_; }

 private:
  bool found(TraceFormat format, bool has_norm) {
    if (has_norm || !guess_) guess_ = format;
    return has_norm;
  }

  FieldPattern pattern_{""};
  FieldNames ignored_;
  ConsoleParse parse_;
  std::optional<TraceFormat> guess_;
};

std::optional<TraceFormat> detect_by_lines(std::string_view text, bool at_end) {
  LineDetector detector;
  ConsoleLine console_line;
  ConsoleText part;
  std::string_view line;
  while (take_line(text, at_end, line)) {
    console_line.set(line, true);
    while (console_line.next(part)) {
      if (detector.decides(part)) return detector.guess();
    }
  }
  return at_end ? detector.guess() : std::nullopt;
}

// A dictionary as Python prints it, not JSON.
bool is_python_dictionary(std::string_view text) {
  const std::size_t name = text.find_first_not_of(kWhite, 1);
  return name != std::string_view::npos && text[name] == '\'';
}

// The first line that is not blank, and its number.
std::string_view first_line(std::string_view text, std::uint64_t& number) {
  std::string_view line;
  for (number = 1; take_line(text, true, line); ++number) {
    if (line.find_first_not_of(kWhite) != std::string_view::npos) return line;
  }
  return {};
}

Error unknown_format(const PeekableSource& source) {
  std::uint64_t number = 1;
  const std::string_view line = first_line(source.peeked(), number);
  std::string names;
  for (const TraceFormatInfo& info : trace_format_names().subspan(1)) {
    names += "\n  " + std::string(info.name) + std::string(15 - std::min<std::size_t>(info.name.size(), 14), ' ') +
             std::string(info.help);
  }
  return error_at(
      at_line(source.name(), number),
      "not a line of a trace or log that can be read: " + in_quotes(line) +
          (source.peeked().size() >= kEnough ? "; nor is any line of the first 4 MiB" : "; nor is any other") +
          ". What can be read, by the name for --format:" + names);
}

std::optional<TraceFormat> detect(std::string_view text, bool at_end) {
  if (starts_with_record(text)) return TraceFormat::tensorboard;
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  const std::size_t start = text.find_first_not_of(kWhite);
  // Our own reader says best what is wrong with an empty file.
  if (start == std::string_view::npos) return at_end ? std::optional(TraceFormat::csv) : std::nullopt;
  text.remove_prefix(start);
  if (text.front() == '{' && !is_python_dictionary(text)) return detect_json(text, at_end);
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
  throw unknown_format(source);
}

}  // namespace gnmr::io

// SPDX-License-Identifier: Apache-2.0
#include "gnmr/io/log_lines.h"

#include <algorithm>
#include <array>
#include <deque>
#include <utility>

#include "gnmr/io/console_text.h"
#include "gnmr/io/line_reader.h"
#include "gnmr/io/number_text.h"
#include "gnmr/io/text_error.h"

namespace gnmr::io {
namespace {

std::string_view next_token(std::string_view& rest) {
  while (!rest.empty() && is_blank(rest.front())) rest.remove_prefix(1);
  std::size_t size = 0;
  while (size < rest.size() && !is_blank(rest[size])) ++size;
  const std::string_view token = rest.substr(0, size);
  rest.remove_prefix(size);
  return token;
}

// The part of `rest` before the next bar; `closed` says whether there was one.
std::string_view next_field(std::string_view& rest, bool& closed) {
  const std::size_t bar = rest.find('|');
  closed = bar != std::string_view::npos;
  const std::string_view field = trim_blanks(rest.substr(0, bar));
  rest.remove_prefix(closed ? bar + 1 : rest.size());
  return field;
}

std::string_view take_digits(std::string_view& rest) {
  while (!rest.empty() && is_blank(rest.front())) rest.remove_prefix(1);
  std::size_t size = 0;
  while (size < rest.size() && is_digit(rest[size])) ++size;
  const std::string_view digits = rest.substr(0, size);
  rest.remove_prefix(size);
  return digits;
}

// `N/M |` with blanks anywhere; what follows the bar stays in `rest`.
bool take_step_of_total(std::string_view& rest, std::int64_t& step) {
  if (!parse_whole(take_digits(rest), step)) return false;
  while (!rest.empty() && is_blank(rest.front())) rest.remove_prefix(1);
  if (!rest.starts_with('/')) return false;
  rest.remove_prefix(1);
  if (take_digits(rest).empty()) return false;
  while (!rest.empty() && is_blank(rest.front())) rest.remove_prefix(1);
  if (!rest.starts_with('|')) return false;
  rest.remove_prefix(1);
  return true;
}

LogLineKind parse_llmc_short(std::string_view line, LogLine& parsed, FieldNames& fields) {
  std::string_view rest = line;
  if (!parse_whole(next_token(rest).substr(2), parsed.step)) return LogLineKind::other;
  LogLineKind kind = LogLineKind::other;
  for (std::string_view token = next_token(rest); !token.empty(); token = next_token(rest)) {
    const std::size_t colon = token.find(':');
    if (colon == std::string_view::npos) continue;
    const std::string_view name = token.substr(0, colon);
    fields.add(name);
    if (kind == LogLineKind::other) kind = LogLineKind::without_norm;
    if (name != "norm") continue;
    const bool whole = parse_number(token.substr(colon + 1), parsed.norm);
    return whole ? LogLineKind::step_with_norm : LogLineKind::cut_short;
  }
  return kind;
}

LogLineKind parse_llmc_table(std::string_view rest, LogLine& parsed, FieldNames& fields) {
  if (!take_step_of_total(rest, parsed.step)) return LogLineKind::other;
  while (!rest.empty()) {
    const std::size_t bar = std::min(rest.find('|'), rest.size());
    std::string_view field = rest.substr(0, bar);
    rest.remove_prefix(std::min(bar + 1, rest.size()));
    const std::string_view name = next_token(field);
    if (!name.empty() && !is_digit(name.front()) && name.front() != '(') fields.add(name);
    if (name != "norm") continue;
    while (!field.empty() && is_blank(field.front())) field.remove_prefix(1);
    const char* end = field.data() + field.size();
    const char* after = scan_number(field.data(), end, parsed.norm);
    // A blank follows the number, so one at the very end of the line may have lost digits.
    const bool whole = after != field.data() && after != end && (is_blank(*after) || *after == '(');
    return whole ? LogLineKind::step_with_norm : LogLineKind::cut_short;
  }
  return LogLineKind::without_norm;
}

class ConsoleLogSource final : public RowSource {
 public:
  ConsoleLogSource(std::unique_ptr<ByteSource> source, const ConsoleLog& log)
      : source_(std::move(source)), log_(log), units_{std::string(log.unit)} {}

  const std::vector<std::string>& units() const override { return units_; }

  bool next(TraceRow& row) override {
    while (waiting_.empty() || !norm_seen_) {
      if (!read_line()) break;
    }
    if (!norm_seen_) throw no_norms_error(source_->name(), log_.kind, fields_);
    if (waiting_.empty()) return false;
    const Waiting& first = waiting_.front();
    row.step = first.step;
    line_ = first.line;
    norm_[0] = first.norm;
    sampled_[0] = first.sampled ? 1 : 0;
    row.norms = norm_;
    row.sampled = sampled_;
    if (!first.sampled) ++without_norm_;
    waiting_.pop_front();
    return true;
  }

  bool can_rewind() const override { return source_->can_rewind(); }

  void rewind() override {
    lines_.rewind();
    texts_.set({}, true);
    waiting_.clear();
    norm_seen_ = false;
    without_norm_ = cut_short_ = 0;
  }

  std::string where() const override { return at_line(source_->name(), line_); }
  std::uint64_t bytes_read() const override { return source_->bytes_read(); }
  std::uint64_t bytes_total() const override { return source_->bytes_total(); }

  std::vector<std::string> notes() const override {
    std::vector<std::string> notes;
    if (without_norm_ > 0) notes.push_back(counted(without_norm_, "row") + " had no gradient norm");
    if (cut_short_ > 0) notes.push_back(counted(cut_short_, "line") + " cut short left out");
    return notes;
  }

 private:
  struct Waiting {
    std::int64_t step;
    std::uint64_t line;
    double norm;
    bool sampled;
  };

  // Rows before the first norm wait, so that a log without any norm is an error and not a run without samples.
  bool read_line() {
    ConsoleText text;
    while (!texts_.next(text)) {
      std::string_view line;
      if (!lines_.next(line)) return false;
      texts_.set(line, !lines_.ending().empty());
    }
    LogLine parsed;
    const LogLineKind kind = log_.parse(text.text, parsed, fields_);
    if (kind == LogLineKind::cut_short) ++cut_short_;
    const bool sampled = kind == LogLineKind::step_with_norm;
    if (!sampled && kind != LogLineKind::step_without_norm) return true;
    if (sampled) check_norm(parsed.norm, at_line(source_->name(), lines_.line_number()));
    waiting_.push_back({parsed.step, lines_.line_number(), sampled ? parsed.norm : 0.0, sampled});
    norm_seen_ = norm_seen_ || sampled;
    return true;
  }

  std::unique_ptr<ByteSource> source_;
  ConsoleLog log_;
  LineReader lines_{*source_};
  ConsoleLine texts_;
  std::vector<std::string> units_;
  FieldNames fields_;
  std::deque<Waiting> waiting_;
  bool norm_seen_ = false;
  std::array<double, 1> norm_ = {};
  std::array<std::uint8_t, 1> sampled_ = {};
  std::uint64_t line_ = 0;
  std::uint64_t without_norm_ = 0;
  std::uint64_t cut_short_ = 0;
};

}  // namespace

LogLineKind parse_llmc_line(std::string_view line, LogLine& parsed, FieldNames& fields) {
  if (line.starts_with("s:")) return parse_llmc_short(line, parsed, fields);
  constexpr std::string_view kStep = "step";
  if (line.starts_with(kStep) && line.size() > kStep.size() && is_blank(line[kStep.size()])) {
    return parse_llmc_table(line.substr(kStep.size()), parsed, fields);
  }
  return LogLineKind::other;
}

LogLineKind parse_megatron_line(std::string_view line, LogLine& parsed, FieldNames& fields) {
  constexpr std::string_view kIteration = "iteration ";
  const std::size_t found = line.find(kIteration);
  if (found == std::string_view::npos) return LogLineKind::other;
  std::string_view rest = line.substr(found + kIteration.size());
  if (!take_step_of_total(rest, parsed.step)) return LogLineKind::other;
  bool closed = true;
  bool past_the_norm = false;
  while (!rest.empty()) {
    const std::string_view field = next_field(rest, closed);
    if (!closed && !field.empty() && !past_the_norm) return LogLineKind::cut_short;
    const std::size_t colon = field.find(':');
    if (colon == std::string_view::npos) continue;
    const std::string_view name = trim_blanks(field.substr(0, colon));
    fields.add(name);
    past_the_norm = past_the_norm || name == "number of skipped iterations";
    if (name != kMegatronLog.unit) continue;
    const bool whole = parse_number(trim_blanks(field.substr(colon + 1)), parsed.norm);
    return whole ? LogLineKind::step_with_norm : LogLineKind::cut_short;
  }
  return LogLineKind::step_without_norm;
}

std::unique_ptr<RowSource> make_console_log(std::unique_ptr<ByteSource> source, const ConsoleLog& log) {
  return std::make_unique<ConsoleLogSource>(std::move(source), log);
}

}  // namespace gnmr::io

// SPDX-License-Identifier: Apache-2.0
#include "gnmr/io/journal_writer.h"

#include <time.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <ctime>
#include <limits>
#include <new>
#include <numeric>

#include "gnmr/core/error.h"
#include "gnmr/io/journal_format.h"

namespace gnmr::io {
namespace {

constexpr RecordShape kLines{};

std::string drop_note(std::uint64_t dropped) {
  std::string line;
  append_line(line, JournalNote{.dropped = dropped, .text = "lines could not be written"});
  return line;
}

// The order of candidates: the most severe first, of equals the last unit.
bool more_severe(const std::pair<double, UnitIndex>& left, const std::pair<double, UnitIndex>& right) {
  return left.first != right.first ? left.first > right.first : left.second > right.second;
}

template <typename Item>
std::vector<Item> picked(const std::vector<Item>& items, const std::vector<std::size_t>& places) {
  if (items.empty()) return {};
  std::vector<Item> some;
  for (const std::size_t place : places) some.push_back(items.at(place));
  return some;
}

// The units with the largest excess, in the order that they had.
JournalTrial shortened(const JournalTrial& trial) {
  const std::vector<double>& measure = trial.excesses.empty() ? trial.errors : trial.excesses;
  std::vector<std::size_t> places(trial.units.size());
  std::iota(places.begin(), places.end(), std::size_t{0});
  const auto size_of = [&](std::size_t place) {
    const double value = place < measure.size() ? measure[place] : 0;
    return std::isnan(value) ? std::numeric_limits<double>::infinity() : value;
  };
  std::stable_sort(places.begin(), places.end(),
                   [&](std::size_t left, std::size_t right) { return size_of(left) > size_of(right); });
  places.resize(kMostUnitsATrial);
  std::sort(places.begin(), places.end());
  JournalTrial some = trial;
  some.units = picked(trial.units, places);
  some.places = picked(trial.places, places);
  some.errors = picked(trial.errors, places);
  some.excesses = picked(trial.excesses, places);
  some.left_out = trial.left_out + trial.units.size() - places.size();
  return some;
}

Signals no_signals() {
  constexpr double kUndefined = std::numeric_limits<double>::quiet_NaN();
  return {.ratio = kUndefined, .delta = kUndefined, .fall = kUndefined, .severity = kUndefined};
}

}  // namespace

JournalWriter::JournalWriter(const JournalSettings& settings) : in_background_(settings.in_background) {
  if (in_background_ && settings.path == "-")
    throw Error("[journal] standard output cannot be written in the background");
  RecordFile opened = open_record_file(settings.path, settings.existing, kLines);
  resumed_ = opened.had_records;
  if (in_background_) {
    sink_ = make_background_sink(std::move(opened.file),
                                 {.shape = kLines, .queue_bytes = settings.queue_bytes, .drop_note = drop_note});
  } else {
    sink_ = make_direct_sink(std::move(opened.file), settings.path, kLines);
  }
  if (resumed_) {
    write([&] { append_line(lines_, JournalResume{.step = settings.resume_step}); });
  }
}

// Lines of one call go together or not at all.
template <typename Format>
void JournalWriter::write(Format format) {
  lines_.clear();
  try {
    format();
  } catch (const std::bad_alloc&) {
    if (!in_background_) throw;
    ++unformatted_;
    return;
  }
  sink_->append(lines_);
}

void JournalWriter::header(const std::vector<Unit>& units, const Options& options, std::string_view started,
                           std::span<const std::string> sites) {
  write([&] { append_header_line(lines_, units, options, started, sites); });
}

void JournalWriter::step(const Controller& controller, const Alarm& alarm, const Decision& decision,
                         const StepContext& context) {
  has_signals_ = context.has_signals;
  const auto total_cost = static_cast<double>(controller.total_cost());
  const double cost_share = total_cost > 0 ? static_cast<double>(decision.recovered_cost) / total_cost : 0;
  write([&] {
    append_line(lines_, JournalStep{.step = decision.step,
                                    .loss = context.loss,
                                    .sampled = alarm.sampled,
                                    .risks = alarm.risks.size(),
                                    .common = decision.common,
                                    .recovered = decision.recovered.size(),
                                    .cost_share = cost_share,
                                    .denied = decision.denied.size(),
                                    .capped = context.capped,
                                    .clip_coefficient = context.clip_coefficient,
                                    .alarm = std::string(context.alarm)});
    append_risks(controller, alarm);
    append_events(controller, decision.step, JournalEventKind::admitted, decision.admitted);
    append_denied(controller, decision);
    append_events(controller, decision.step, JournalEventKind::futile, decision.futile);
    append_events(controller, decision.step, JournalEventKind::released, decision.released);
    for (const UnitIndex unit : decision.newly_standing) {
      const bool fills = std::binary_search(decision.filling.begin(), decision.filling.end(), unit);
      append_events(controller, decision.step, fills ? JournalEventKind::filling : JournalEventKind::standing,
                    {&unit, 1});
    }
  });
}

std::span<const std::pair<double, UnitIndex>> JournalWriter::most_severe(const Controller& controller,
                                                                         std::span<const UnitIndex> units,
                                                                         std::size_t most) {
  severities_.clear();
  for (const UnitIndex unit : units) {
    const double severity = controller.signals(unit).severity;
    // One that asks because of its error need not have one; nor has NaN an order.
    severities_.emplace_back(std::isnan(severity) ? -1 : severity, unit);
  }
  const std::size_t shown = std::min(severities_.size(), most);
  std::partial_sort(severities_.begin(), severities_.begin() + static_cast<std::ptrdiff_t>(shown), severities_.end(),
                    more_severe);
  return {severities_.data(), shown};
}

void JournalWriter::append_risks(const Controller& controller, const Alarm& alarm) {
  for (const auto& [severity, unit] : most_severe(controller, alarm.risks, kMostRisksPerStep)) {
    append_events(controller, alarm.step, JournalEventKind::risk, {&unit, 1});
  }
}

void JournalWriter::append_denied(const Controller& controller, const Decision& decision) {
  if (decision.denied.size() <= kMostDeniedPerStep) {
    append_events(controller, decision.step, JournalEventKind::denied, decision.denied);
    return;
  }
  std::array<UnitIndex, kMostDeniedPerStep> shown;
  const auto severe = most_severe(controller, decision.denied, shown.size());
  std::transform(severe.begin(), severe.end(), shown.begin(), [](const auto& one) { return one.second; });
  std::sort(shown.begin(), shown.end());
  append_events(controller, decision.step, JournalEventKind::denied, shown);
}

void JournalWriter::append_events(const Controller& controller, std::int64_t step, JournalEventKind kind,
                                  std::span<const UnitIndex> units) {
  for (const UnitIndex unit : units) {
    append_line(lines_, JournalEventView{.step = step,
                                         .unit = controller.units()[unit].name,
                                         .event = kind,
                                         .signals = has_signals_ ? controller.signals(unit) : no_signals(),
                                         .left = controller.steps_left(unit)});
  }
}

void JournalWriter::trial(const JournalTrial& trial) {
  write([&] { append_line(lines_, trial.units.size() > kMostUnitsATrial ? shortened(trial) : trial); });
}

void JournalWriter::mode(const JournalMode& mode) {
  write([&] { append_line(lines_, mode); });
}

void JournalWriter::note(std::string_view text) {
  write([&] { append_line(lines_, JournalNote{.dropped = 0, .text = std::string(text)}); });
}

bool JournalWriter::flush(std::chrono::milliseconds longest) { return sink_->flush(longest); }

bool JournalWriter::close(std::chrono::milliseconds longest) { return sink_->close(longest); }

std::string utc_text(std::chrono::system_clock::time_point time) {
  const std::time_t seconds = std::chrono::system_clock::to_time_t(time);
  std::tm parts{};
  ::gmtime_r(&seconds, &parts);
  std::array<char, 32> text;
  return {text.data(), std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts)};
}

}  // namespace gnmr::io

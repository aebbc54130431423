// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "gnmr/core/error.h"
#include "gnmr/io/journal_format.h"
#include "gnmr/io/json_text.h"
#include "gnmr/io/options_json.h"

namespace gnmr::io {
namespace {

using Json = nlohmann::json;

[[noreturn]] void fail_field(std::string_view key, std::string_view expected) {
  throw Error(fmt::format("`{}`: expected {}", key, expected));
}

const Json& field(const Json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end()) throw Error(fmt::format("`{}` is missing", key));
  return *found;
}

double number_of(const Json& value, std::string_view key) {
  if (value.is_number()) return value.get<double>();
  if (value == "inf") return std::numeric_limits<double>::infinity();
  if (value == "-inf") return -std::numeric_limits<double>::infinity();
  if (value == "nan") return std::numeric_limits<double>::quiet_NaN();
  fail_field(key, "a number");
}

std::optional<double> optional_number(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() ? std::nullopt : std::optional(number_of(*found, key));
}

std::int64_t signed_of(const Json& object, const char* key) {
  const Json& value = field(object, key);
  const bool fits = value.is_number_integer() &&
                    (!value.is_number_unsigned() ||
                     value.get<std::uint64_t>() <= std::uint64_t{std::numeric_limits<std::int64_t>::max()});
  if (!fits) fail_field(key, "a whole number of 64 bits");
  return value.get<std::int64_t>();
}

std::uint64_t count_of(const Json& object, const char* key) {
  const Json& value = field(object, key);
  if (!value.is_number_unsigned()) fail_field(key, "a whole number that is not negative");
  return value.get<std::uint64_t>();
}

std::string text_of(const Json& object, const char* key) {
  const Json& value = field(object, key);
  if (!value.is_string()) fail_field(key, "a string");
  return value.get<std::string>();
}

std::string text_or_empty(const Json& object, const char* key) {
  return object.contains(key) ? text_of(object, key) : std::string();
}

bool flag_of(const Json& object, const char* key) {
  const Json& value = field(object, key);
  if (!value.is_boolean()) fail_field(key, "true or false");
  return value.get<bool>();
}

const Json& list_of(const Json& object, const char* key) {
  const Json& value = field(object, key);
  if (!value.is_array()) fail_field(key, "an array");
  return value;
}

std::vector<double> numbers_of(const Json& object, const char* key) {
  std::vector<double> numbers;
  for (const Json& value : list_of(object, key)) numbers.push_back(number_of(value, key));
  return numbers;
}

std::vector<std::string> texts_of(const Json& object, const char* key) {
  std::vector<std::string> texts;
  for (const Json& value : list_of(object, key)) {
    if (!value.is_string()) fail_field(key, "an array of strings");
    texts.push_back(value.get<std::string>());
  }
  return texts;
}

// Like the state file: an option that came later is the default, one that has gone is passed over.
Options parse_options(const Json& object) {
  if (!object.is_object()) fail_field("options", "an object");
  Json known = Json::object();
  for (const OptionSpec& spec : option_specs()) {
    const auto found = object.find(spec.name);
    if (found != object.end()) known[std::string(spec.name)] = *found;
  }
  return read_options(known.dump(-1, ' ', false, Json::error_handler_t::replace));
}

Unit parse_unit(const Json& object) {
  if (!object.is_object()) fail_field("units", "an array of objects");
  Unit unit;
  unit.name = text_of(object, "name");
  unit.cost = signed_of(object, "cost");
  unit.group = text_or_empty(object, "group");
  unit.forced = object.contains("forced") && flag_of(object, "forced");
  return unit;
}

JournalRecord parse_header(const Json& object) {
  JournalHeader header;
  header.version = signed_of(object, "version");
  if (header.version < 1 || header.version > kJournalVersion) {
    throw Error(fmt::format("version {}, this program reads 1 to {}", header.version, kJournalVersion));
  }
  header.options = parse_options(field(object, "options"));
  for (const Json& unit : list_of(object, "units")) header.units.push_back(parse_unit(unit));
  header.started = text_or_empty(object, "started");
  return header;
}

JournalRecord parse_step(const Json& object) {
  return JournalStep{.step = signed_of(object, "step"),
                     .loss = optional_number(object, "loss"),
                     .sampled = count_of(object, "sampled"),
                     .risks = count_of(object, "risks"),
                     .common = flag_of(object, "common"),
                     .recovered = count_of(object, "recovered"),
                     .cost_share = number_of(field(object, "cost_share"), "cost_share"),
                     .denied = object.contains("denied") ? count_of(object, "denied") : 0,
                     .clip_coefficient = optional_number(object, "clip_coefficient"),
                     .alarm = text_or_empty(object, "alarm")};
}

JournalRecord parse_event(const Json& object) {
  const std::string name = text_of(object, "event");
  const std::optional<JournalEventKind> kind = event_kind(name);
  if (!kind) fail_field("event", "risk, admitted, denied, futile or released, got " + in_quotes(name));
  return JournalEvent{.step = signed_of(object, "step"),
                      .unit = text_of(object, "unit"),
                      .event = *kind,
                      .ratio = optional_number(object, "ratio"),
                      .delta = optional_number(object, "delta"),
                      .fall = optional_number(object, "fall"),
                      .severity = optional_number(object, "severity"),
                      .left = count_of(object, "left")};
}

JournalRecord parse_trial(const Json& object) {
  JournalTrial trial;
  trial.step = signed_of(object, "step");
  trial.verdict = text_of(object, "verdict");
  if (trial.verdict == "gone") trial.verdict = "unlocated";  // what earlier versions called it
  trial.units = texts_of(object, "units");
  trial.errors = numbers_of(object, "errors");
  trial.losses = numbers_of(object, "losses");
  trial.seconds = number_of(field(object, "seconds"), "seconds");
  if (object.contains("rerun")) trial.rerun = text_of(object, "rerun");
  if (object.contains("places")) trial.places = texts_of(object, "places");
  if (object.contains("excesses")) trial.excesses = numbers_of(object, "excesses");
  trial.distance = optional_number(object, "distance");
  if (object.contains("norms")) trial.norms = numbers_of(object, "norms");
  if (object.contains("rank")) trial.rank = signed_of(object, "rank");
  if (object.contains("applied")) trial.applied = flag_of(object, "applied");
  trial.why = text_or_empty(object, "why");
  if (object.contains("left_out")) trial.left_out = count_of(object, "left_out");
  return trial;
}

JournalRecord parse_mode(const Json& object) {
  const std::string name = text_of(object, "mode");
  const std::optional<JournalModeKind> kind = mode_kind(name);
  if (!kind) fail_field("mode", "armed, watch or high, got " + in_quotes(name));
  return JournalMode{.mode = *kind, .why = text_or_empty(object, "why")};
}

JournalRecord parse_resume(const Json& object) { return JournalResume{.step = signed_of(object, "step")}; }

JournalRecord parse_note(const Json& object) {
  return JournalNote{.dropped = object.contains("dropped") ? count_of(object, "dropped") : 0,
                     .text = text_or_empty(object, "text")};
}

struct KindParser {
  std::string_view kind;
  JournalRecord (*parse)(const Json&);
};

constexpr KindParser kParsers[] = {{"header", parse_header}, {"step", parse_step}, {"event", parse_event},
                                   {"trial", parse_trial},   {"mode", parse_mode}, {"resume", parse_resume},
                                   {"note", parse_note}};

}  // namespace

std::optional<JournalRecord> parse_journal_line(std::string_view line) {
  refuse_deep_json(line);
  const Json object = Json::parse(line.begin(), line.end(), nullptr, /*allow_exceptions=*/false);
  if (object.is_discarded()) throw Error("not JSON");
  if (!object.is_object()) throw Error("not a JSON object");
  const std::string kind = text_of(object, "kind");
  for (const KindParser& parser : kParsers) {
    if (parser.kind == kind) return parser.parse(object);
  }
  return std::nullopt;
}

}  // namespace gnmr::io

// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "gnmr/core/error.h"
#include "gnmr/io/journal_format.h"
#include "gnmr/io/json.h"
#include "gnmr/io/json_text.h"
#include "gnmr/io/options_json.h"

namespace gnmr::io {
namespace {

[[noreturn]] void fail_field(std::string_view key, std::string_view expected) {
  throw Error(fmt::format("`{}`: expected {}", key, expected));
}

std::string text_or_empty(const JsonObject& object, const char* key) { return object.text_if(key).value_or(""); }

// Like the state file: an option that came later is the default, one that has gone is skipped.
Options parse_options(const JsonObject& object) {
  Json known = Json::object();
  for (const OptionSpec& spec : option_specs()) {
    const auto found = object.json().find(spec.name);
    if (found != object.json().end()) known[std::string(spec.name)] = *found;
  }
  return read_options(known.dump(-1, ' ', false, Json::error_handler_t::replace));
}

Unit parse_unit(const JsonObject& object) {
  return {.name = object.text("name"),
          .cost = object.whole("cost"),
          .group = text_or_empty(object, "group"),
          .forced = object.truth_if("forced").value_or(false)};
}

JournalRecord parse_header(const JsonObject& object) {
  JournalHeader header;
  header.version = object.whole("version");
  if (header.version < 1 || header.version > kJournalVersion) {
    throw Error(fmt::format("version {}, this program reads 1 to {}", header.version, kJournalVersion));
  }
  header.options = parse_options(object.object("options"));
  for (const JsonObject& unit : object.objects("units")) header.units.push_back(parse_unit(unit));
  header.started = text_or_empty(object, "started");
  if (object.has("sites")) header.sites = object.texts("sites");
  return header;
}

JournalRecord parse_step(const JsonObject& object) {
  return JournalStep{.step = object.whole("step"),
                     .loss = object.number_if("loss"),
                     .sampled = object.count("sampled"),
                     .risks = object.count("risks"),
                     .common = object.truth("common"),
                     .recovered = object.count("recovered"),
                     .cost_share = object.number("cost_share"),
                     .denied = object.count_if("denied").value_or(0),
                     .capped = object.truth_if("capped").value_or(false),
                     .clip_coefficient = object.number_if("clip_coefficient"),
                     .alarm = text_or_empty(object, "alarm")};
}

JournalRecord parse_event(const JsonObject& object) {
  const std::string name = object.text("event");
  const std::optional<JournalEventKind> kind = event_kind(name);
  if (!kind) fail_field("event", "risk, admitted, denied, futile or released, got " + in_quotes(name));
  return JournalEvent{.step = object.whole("step"),
                      .unit = object.text("unit"),
                      .event = *kind,
                      .ratio = object.number_if("ratio"),
                      .delta = object.number_if("delta"),
                      .fall = object.number_if("fall"),
                      .severity = object.number_if("severity"),
                      .left = object.count("left")};
}

JournalRecord parse_trial(const JsonObject& object) {
  JournalTrial trial;
  trial.step = object.whole("step");
  trial.verdict = object.text("verdict");
  if (trial.verdict == "gone") trial.verdict = "unlocated";  // what earlier versions called it
  trial.units = object.texts("units");
  trial.errors = object.numbers("errors");
  trial.losses = object.numbers("losses");
  trial.seconds = object.number("seconds");
  if (object.has("rerun")) trial.rerun = object.text("rerun");
  if (object.has("places")) trial.places = object.texts("places");
  if (object.has("excesses")) trial.excesses = object.numbers("excesses");
  trial.distance = object.number_if("distance");
  if (object.has("norms")) trial.norms = object.numbers("norms");
  trial.rank = object.whole_if("rank");
  trial.applied = object.truth_if("applied");
  trial.why = text_or_empty(object, "why");
  trial.left_out = object.count_if("left_out").value_or(0);
  return trial;
}

JournalRecord parse_mode(const JsonObject& object) {
  const std::string name = object.text("mode");
  const std::optional<Mode> kind = mode_kind(name);
  if (!kind) fail_field("mode", "armed, watch or high, got " + in_quotes(name));
  return JournalMode{.mode = *kind, .why = text_or_empty(object, "why")};
}

JournalRecord parse_resume(const JsonObject& object) { return JournalResume{.step = object.whole("step")}; }

JournalRecord parse_note(const JsonObject& object) {
  return JournalNote{.dropped = object.count_if("dropped").value_or(0), .text = text_or_empty(object, "text")};
}

struct KindParser {
  std::string_view kind;
  JournalRecord (*parse)(const JsonObject&);
};

constexpr KindParser kParsers[] = {{"header", parse_header}, {"step", parse_step}, {"event", parse_event},
                                   {"trial", parse_trial},   {"mode", parse_mode}, {"resume", parse_resume},
                                   {"note", parse_note}};

}  // namespace

std::optional<JournalRecord> parse_journal_line(std::string_view line) {
  refuse_deep_json(line);
  const Json document = Json::parse(line.begin(), line.end(), nullptr, /*allow_exceptions=*/false);
  if (document.is_discarded()) throw Error("not JSON");
  if (!document.is_object()) throw Error("not a JSON object");
  const JsonObject object(document);
  const std::string kind = object.text("kind");
  for (const KindParser& parser : kParsers) {
    if (parser.kind == kind) return parser.parse(object);
  }
  return std::nullopt;
}

}  // namespace gnmr::io

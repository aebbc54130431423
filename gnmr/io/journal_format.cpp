// SPDX-License-Identifier: Apache-2.0
#include "gnmr/io/journal_format.h"

#include <cmath>

#include "gnmr/io/json_text.h"
#include "gnmr/io/options_json.h"

namespace gnmr::io {
namespace {

void append_text_field(std::string& out, std::string_view key, std::string_view text) {
  out += key;
  append_json_string(out, text);
}

template <typename Number>
void append_field(std::string& out, std::string_view key, Number value) {
  out += key;
  append_json_number(out, value);
}

void append_if_known(std::string& out, std::string_view key, std::optional<double> value) {
  if (value) append_field(out, key, *value);
}

void append_if_defined(std::string& out, std::string_view key, double value) {
  if (!std::isnan(value)) append_field(out, key, value);
}

template <typename Items, typename Append>
void append_list(std::string& out, std::string_view key, const Items& items, Append append) {
  out += key;
  char separator = '[';
  for (const auto& item : items) {
    out += separator;
    append(item);
    separator = ',';
  }
  out += items.empty() ? "[]" : "]";
}

}  // namespace

void append_header_line(std::string& out, const std::vector<Unit>& units, const Options& options,
                        std::string_view started, std::span<const std::string> sites) {
  append_field(out, R"({"kind":"header","version":)", kJournalVersion);
  out += R"(,"options":)";
  out += write_options(options);
  append_list(out, R"(,"units":)", units, [&](const Unit& unit) {
    append_text_field(out, R"({"name":)", unit.name);
    append_field(out, R"(,"cost":)", unit.cost);
    if (!unit.group.empty()) append_text_field(out, R"(,"group":)", unit.group);
    if (unit.forced) out += R"(,"forced":true)";
    out += '}';
  });
  if (!sites.empty()) {
    append_list(out, R"(,"sites":)", sites, [&](const std::string& site) { append_json_string(out, site); });
  }
  if (!started.empty()) append_text_field(out, R"(,"started":)", started);
  out += "}\n";
}

void append_line(std::string& out, const JournalStep& record) {
  append_field(out, R"({"kind":"step","step":)", record.step);
  append_if_known(out, R"(,"loss":)", record.loss);
  append_field(out, R"(,"sampled":)", record.sampled);
  append_field(out, R"(,"risks":)", record.risks);
  out += record.common ? R"(,"common":true)" : R"(,"common":false)";
  append_field(out, R"(,"recovered":)", record.recovered);
  append_field(out, R"(,"cost_share":)", record.cost_share);
  if (record.denied > 0) append_field(out, R"(,"denied":)", record.denied);
  if (record.capped) out += R"(,"capped":true)";
  append_if_known(out, R"(,"clip_coefficient":)", record.clip_coefficient);
  if (!record.alarm.empty()) append_text_field(out, R"(,"alarm":)", record.alarm);
  out += "}\n";
}

void append_line(std::string& out, const JournalEventView& record) {
  append_field(out, R"({"kind":"event","step":)", record.step);
  append_text_field(out, R"(,"unit":)", record.unit);
  append_text_field(out, R"(,"event":)", to_string(record.event));
  append_if_defined(out, R"(,"ratio":)", record.signals.ratio);
  append_if_defined(out, R"(,"delta":)", record.signals.delta);
  append_if_defined(out, R"(,"fall":)", record.signals.fall);
  append_if_defined(out, R"(,"severity":)", record.signals.severity);
  append_field(out, R"(,"left":)", record.left);
  out += "}\n";
}

void append_line(std::string& out, const JournalTrial& record) {
  const auto append_number = [&](double value) { append_json_number(out, value); };
  const auto append_text = [&](const std::string& text) { append_json_string(out, text); };
  append_field(out, R"({"kind":"trial","step":)", record.step);
  append_text_field(out, R"(,"rerun":)", record.rerun);
  append_text_field(out, R"(,"verdict":)", record.verdict);
  append_list(out, R"(,"units":)", record.units, append_text);
  if (!record.places.empty()) append_list(out, R"(,"places":)", record.places, append_text);
  append_list(out, R"(,"errors":)", record.errors, append_number);
  if (!record.excesses.empty()) append_list(out, R"(,"excesses":)", record.excesses, append_number);
  append_list(out, R"(,"losses":)", record.losses, append_number);
  if (!record.norms.empty()) append_list(out, R"(,"norms":)", record.norms, append_number);
  append_if_known(out, R"(,"distance":)", record.distance);
  append_field(out, R"(,"seconds":)", record.seconds);
  if (record.rank) append_field(out, R"(,"rank":)", *record.rank);
  if (record.applied) out += *record.applied ? R"(,"applied":true)" : R"(,"applied":false)";
  if (!record.why.empty()) append_text_field(out, R"(,"why":)", record.why);
  if (record.left_out > 0) append_field(out, R"(,"left_out":)", record.left_out);
  out += "}\n";
}

void append_line(std::string& out, const JournalMode& record) {
  append_text_field(out, R"({"kind":"mode","mode":)", to_string(record.mode));
  append_text_field(out, R"(,"why":)", record.why);
  out += "}\n";
}

void append_line(std::string& out, const JournalResume& record) {
  append_field(out, R"({"kind":"resume","step":)", record.step);
  out += "}\n";
}

void append_line(std::string& out, const JournalNote& record) {
  out += R"({"kind":"note")";
  if (record.dropped > 0) append_field(out, R"(,"dropped":)", record.dropped);
  append_text_field(out, R"(,"text":)", record.text);
  out += "}\n";
}

}  // namespace gnmr::io

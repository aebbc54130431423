// SPDX-License-Identifier: Apache-2.0
#include "gnmr/tune_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "gnmr/core/message_text.h"
#include "gnmr/io/json_text.h"
#include "gnmr/io/options_json.h"
#include "gnmr/messages.h"
#include "gnmr/tune_columns.h"

namespace gnmr::app {
namespace {

/// Rows that are shown, in their order: the chosen, the given, then the best ones.
std::vector<std::size_t> shown_rows(const TuneOutcome& outcome, std::size_t most_rows, bool every_replay) {
  std::vector<std::size_t> rows;
  for (std::size_t i = 0; i < outcome.results.size(); ++i) {
    if (every_replay || outcome.results[i].best || is_chosen(outcome, i) || is_given(outcome.results[i])) {
      rows.push_back(i);
    }
  }
  const bool by_score = outcome.results.front().score.faults > 0;
  const auto place = [&](std::size_t i) {
    const lab::TuneResult& result = outcome.results[i];
    const double value = by_score ? -result.score.f_score : result.score.bluntness();
    const int first = is_chosen(outcome, i) ? 0 : is_given(result) ? 1 : 2;
    return std::tuple(result.candidate.by_evidence(), first, value);
  };
  std::stable_sort(rows.begin(), rows.end(), [&](std::size_t a, std::size_t b) { return place(a) < place(b); });
  if (every_replay || most_rows == 0) return rows;
  // The limit is for each family, so that neither hides the other.
  std::vector<std::size_t> few;
  std::size_t counts[2] = {0, 0};
  for (const std::size_t row : rows) {
    if (counts[outcome.results[row].candidate.by_evidence() ? 1 : 0]++ < most_rows) few.push_back(row);
  }
  return few;
}

std::string table_text(const TuneOutcome& outcome, const std::vector<std::size_t>& rows) {
  std::vector<std::vector<std::string>> cells;
  std::vector<bool> is_number;
  const std::vector<TuneColumn> columns = tune_columns(outcome);
  cells.emplace_back();
  for (const TuneColumn& column : columns) {
    cells.back().push_back(column.title);
    is_number.push_back(column.is_number);
  }
  for (const std::size_t row : rows) {
    cells.emplace_back();
    for (const TuneColumn& column : columns) cells.back().push_back(column.cell(row));
  }
  std::vector<std::size_t> widths(columns.size(), 0);
  for (const auto& row : cells) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : cells) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      line += i == 0 ? "" : "  ";
      line += is_number[i] ? fmt::format("{:>{}}", row[i], widths[i]) : fmt::format("{:<{}}", row[i], widths[i]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

void append_choice(std::string& text, const char* family, const std::optional<lab::FamilyChoice>& choice) {
  if (choice) text += fmt::format("{}: {}.\n", family, choice->why);
}

void append_result(std::string& out, const TuneOutcome& outcome, std::size_t index) {
  const lab::TuneResult& result = outcome.results[index];
  const lab::TuneScore& score = result.score;
  out += "{\"selector\":";
  io::append_json_string(out, result.candidate.by_evidence() ? "evidence" : "norms");
  const auto number = [&](const char* key, auto value) {
    out += fmt::format(",\"{}\":", key);
    io::append_json_number(out, value);
  };
  const auto flag = [&](const char* key, bool value) { out += fmt::format(",\"{}\":{}", key, value); };
  number("factor", result.candidate.factor);
  number("ceiling_factor", result.candidate.ceiling_factor);
  flag("given", is_given(result));
  flag("best", result.best);
  flag("chosen", is_chosen(outcome, index));
  number("risks_per_thousand_unit_steps", score.risk_rate);
  number("own_risks_per_thousand_unit_steps", score.own_rate);
  number("calm_risks_per_thousand_unit_steps", score.calm_rate);
  number("risks", score.risks);
  number("recoveries", score.admissions);
  number("denials", score.denials);
  number("futile", score.futile);
  number("mean_share_in_recovery", score.mean_share);
  number("peak_share_in_recovery", score.peak_share);
  number("sees_rise", score.sees_rise);
  number("sees_fall", score.sees_fall);
  number("sees_error", score.sees_error);
  if (outcome.rule.truth) {
    number("faults", score.faults);
    number("recall", score.recall);
    number("precision", score.precision);
    number("f_score", score.f_score);
    number("mean_delay_steps", score.delay);
  }
  out += ",\"options\":" + io::write_options(result.candidate.options) + "}";
}

}  // namespace

std::string tune_text(const TuneOutcome& outcome, std::size_t most_rows, bool every_replay) {
  const std::vector<std::size_t> rows = shown_rows(outcome, most_rows, every_replay);
  const auto best = std::count_if(outcome.results.begin(), outcome.results.end(),
                                  [](const lab::TuneResult& result) { return result.best; });
  std::string text = fmt::format("{} of {}, {}; {} {} best (*), {} shown\n\n",
                                 counted(outcome.results.size(), "replay"), counted(outcome.steps, "step"),
                                 counted(outcome.units, "unit"), best, best == 1 ? "is" : "are", rows.size());
  text += table_text(outcome, rows);
  text += "\n> chosen, = as given, * no other replay with that selector is as good in everything";
  text += outcome.rule.truth ? " (recall, precision, share)\n\n" : " (what is seen, own risks, denials, share)\n\n";
  append_choice(text, "thresholds of norms", outcome.choice.norms);
  append_choice(text, "thresholds of errors", outcome.choice.evidence);
  if (!outcome.rule.truth)
    text += "lock_steps and max_o are as given: without --truth a recorded run cannot judge them.\n";
  text += "\n" + io::write_options(outcome.choice.options) + "\n";
  return text;
}

std::string tune_json(const TuneOutcome& outcome) {
  std::string out = "{\"steps\":";
  io::append_json_number(out, outcome.steps);
  out += ",\"units\":";
  io::append_json_number(out, std::uint64_t{outcome.units});
  out += fmt::format(",\"rule\":\"{}\",\"rate\":", outcome.rule.truth     ? "truth"
                                                   : outcome.rule.healthy ? "healthy"
                                                                          : "calm");
  io::append_json_number(out, outcome.rule.rate);
  out += ",\"why\":{";
  const char* separator = "";
  for (const auto& [family, choice] :
       {std::pair("norms", &outcome.choice.norms), {"evidence", &outcome.choice.evidence}}) {
    if (!*choice) continue;
    out += fmt::format("{}\"{}\":", separator, family);
    io::append_json_string(out, (*choice)->why);
    separator = ",";
  }
  out += "},\"options\":" + io::write_options(outcome.choice.options) + ",\"replays\":[";
  for (std::size_t i = 0; i < outcome.results.size(); ++i) {
    if (i > 0) out += ',';
    append_result(out, outcome, i);
  }
  return out + "]}\n";
}

}  // namespace gnmr::app

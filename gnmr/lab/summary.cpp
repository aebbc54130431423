// SPDX-License-Identifier: Apache-2.0
#include "gnmr/lab/summary.h"

#include <algorithm>

#include "gnmr/io/json.h"
#include "gnmr/io/whole_file.h"
#include "gnmr/lab/summary_row.h"

namespace gnmr::lab {
namespace {

constexpr std::int64_t kSummaryVersion = 1;
constexpr std::size_t kLargestSummary = std::size_t{64} << 20U;

/// What every column is; `{low}` stands for the arm that others are measured by.
const std::vector<SummaryColumn>& all_columns() {
  static const std::vector<SummaryColumn> columns{
      {"loss", "loss", "Held-out loss at the end, all units high: mean ± sample standard deviation over seeds"},
      {"loss_low", "on low path", "The same with all units on their low path"},
      {"loss_trained", "as trained",
       "The same with each unit on the path that it had at the end of training: in recovery or always high, or low"},
      {"high_change", "- high",
       "How much higher the loss is than that of the arm `high`, in nats, paired by seed: mean and 95% interval "
       "(Student's)"},
      {"trained_change", "as trained - high", "The same as trained"},
      {"loss_change", "- none",
       "How much higher the loss is than that of the arm `none`, in nats, paired by seed: mean and 95% interval "
       "(Student's)"},
      {"equivalent", "equal",
       "Whether that interval (healthy runs: - none, else - high) lies within 0.25% of the loss: no proof of a "
       "difference where it does not"},
      {"seeds", "n", "Seeds that have a result"},
      {"gap_closed", "gap closed",
       "Mean of {low} - arm over mean of {low} - high, paired by seed, with its 95% interval (Fieller's); `no gap` "
       "where {low} - high is not above its noise"},
      {"gap_trained", "as trained", "The same with the losses as trained"},
      {"of_oracle", "of oracle",
       "Mean of none - arm over mean of none - oracle, likewise; `no gain` where the oracle wins nothing above its "
       "noise"},
      {"share_mean", "% in recovery", "Mean share of the units in recovery, over steps"},
      {"share_peak", "% peak", "Largest share of the units in recovery"},
      {"oracle_use", "x oracle", "The mean share against the oracle's"},
      {"high_mean", "% on high path", "Mean share of the units that ran high, for any reason, without reruns"},
      {"high_total", "% high", "Unit-steps in high precision for any reason, reruns included"},
      {"high_cost", "% multiply-adds", "The same of the multiply-adds of units"},
      {"rule_share", "% changed", "Steps whose update the rival's rule changed"},
      {"high_parts", "% acute/standing/reruns",
       "Unit-steps in high precision because of the controller, by reason: acute recovery, standing recovery, and "
       "reruns, which the budget does not limit"},
      {"risks_per_thousand", "risks/1000", "Units at risk per thousand unit-steps"},
      {"admissions", "recoveries", "Recoveries that began, per run"},
      {"skipped_updates", "skipped", "Updates that were not applied (not finite, or left out on purpose), per run"},
      {"recall", "recall",
       "Injected faults that a recovery met, of all seeds, with the 95% interval (Clopper-Pearson)"},
      {"harmful", "harmful",
       "Injected faults that moved the gradient by more than a tenth + those whose layer ran high all the time, so "
       "that it is unknown; of all seeds"},
      {"harmful_recall", "recall",
       "Of these, the ones that were met: a recovery began from their first step to their last, or the layer ran high "
       "in one of them; of a transient fault, its step was run again; with the 95% interval (Clopper-Pearson)"},
      {"precision", "precision", "Recoveries that began in an injected fault, of all seeds, likewise"},
      {"false_alarms", "false/million", "Recoveries that began outside faults, per million unit-steps"},
      {"delay", "delay", "Steps from the beginning of a fault to its recovery, if one began"},
      {"largest_delay", "longest", "The longest of these, of all seeds"},
      {"trials", "trials", "Steps that were run again in high precision, per run"},
      {"verdicts", "num/com/unl",
       "These by their verdict: low paths were off; high precision shows the same; unlocated"},
      {"trials_per_harmful", "per fault", "Trials for each fault under `harmful`"},
      {"replays", "replays", "Steps that were run again with the admitted units high, per run"},
      {"rerun_time", "% rerun", "Share of the time that reruns took"},
      {"step_ms", "step ms", "Median time of a step, with as many cells at a time as there were jobs"},
      {"step_ratio", "x {low}", "The time of a step, its part of the reruns added, against the arm `{low}`"},
  };
  return columns;
}

using Keys = std::vector<std::string_view>;

/// What each kind of table shows, in its order. Under faults what was won comes first, then how.
const Keys& keys_of(SummaryKind kind) {
  static const Keys stress{"loss",        "loss_low",        "loss_trained", "seeds",
                           "high_change", "trained_change",  "equivalent",   "gap_closed",
                           "gap_trained", "share_mean",      "share_peak",   "high_mean",
                           "high_total",  "high_cost",       "high_parts",   "risks_per_thousand",
                           "admissions",  "skipped_updates", "recall",       "precision",
                           "delay",       "trials",          "step_ms",      "step_ratio"};
  static const Keys faults{"loss",       "loss_trained",       "seeds",       "high_change",     "trained_change",
                           "equivalent", "gap_closed",         "gap_trained", "of_oracle",       "share_mean",
                           "share_peak", "high_total",         "high_cost",   "high_parts",      "oracle_use",
                           "step_ms",    "step_ratio",         "recall",      "harmful",         "harmful_recall",
                           "precision",  "false_alarms",       "delay",       "largest_delay",   "trials",
                           "verdicts",   "trials_per_harmful", "rerun_time",  "skipped_updates", "rule_share",
                           "replays"};
  static const Keys healthy{
      "loss",       "loss_trained",    "seeds",      "loss_change", "high_change", "equivalent",
      "share_mean", "share_peak",      "high_total", "high_cost",   "high_parts",  "risks_per_thousand",
      "admissions", "false_alarms",    "trials",     "verdicts",    "rerun_time",  "step_ms",
      "step_ratio", "skipped_updates", "rule_share", "replays"};
  if (kind == SummaryKind::stress) return stress;
  return kind == SummaryKind::faults ? faults : healthy;
}

const SummaryColumn& column_of(std::string_view key) {
  const std::vector<SummaryColumn>& all = all_columns();
  return *std::find_if(all.begin(), all.end(), [&](const SummaryColumn& column) { return column.key == key; });
}

/// A column with the name of the arm that others are measured by.
SummaryColumn named(SummaryColumn column, std::string_view low) {
  for (std::string* const text : {&column.title, &column.help}) {
    for (std::size_t at = text->find("{low}"); at != std::string::npos; at = text->find("{low}")) {
      text->replace(at, 5, low);
    }
  }
  return column;
}

/// Whether a column says anything. Where there are many, a count that is 0 everywhere does not.
bool is_used(const std::string& key, const Comparison& comparison, const std::vector<SummaryRow>& rows) {
  double usual = -1;
  if (comparison.kind != SummaryKind::stress && (key == "replays" || key == "skipped_updates")) usual = 0;
  return std::any_of(rows.begin(), rows.end(), [&](const SummaryRow& row) {
    const auto found = row.cells.find(key);
    return found != row.cells.end() && found->second.value != usual;
  });
}

}  // namespace

const std::vector<CellResult>& Comparison::cells_of(std::string_view name) const {
  static const std::vector<CellResult> none;
  for (std::size_t arm = 0; arm < arms.size(); ++arm) {
    if (arms[arm].name == name) return cells[arm];
  }
  return none;
}

Summary summarise(const Comparison& comparison) {
  Summary summary{.columns = {}, .rows = {}, .notes = comparison.notes};
  for (std::size_t arm = 0; arm < comparison.arms.size(); ++arm) summary.rows.push_back(summary_row(comparison, arm));
  for (const std::string_view key : keys_of(comparison.kind)) {
    const SummaryColumn& column = column_of(key);
    if (is_used(column.key, comparison, summary.rows)) summary.columns.push_back(named(column, comparison.low()));
  }
  return summary;
}

Comparison compare(const Suite& suite, const std::vector<std::optional<CellResult>>& results) {
  Comparison comparison{.seeds = suite.seeds().size()};
  if (!suite.fault().empty()) {
    comparison.kind = suite.fault() == kNoFault ? SummaryKind::healthy : SummaryKind::faults;
  }
  for (const SuiteArm& arm : suite.arms()) comparison.arms.push_back(arm.arm);
  comparison.cells.resize(suite.arms().size());
  for (std::size_t cell = 0; cell < suite.cells().size(); ++cell) {
    if (!results[cell]) continue;
    comparison.cells[suite.cells()[cell].arm].push_back(*results[cell]);
    const std::string& note = results[cell]->note;
    if (!note.empty()) comparison.notes.push_back(suite.cells()[cell].name + ": " + note);
  }
  return comparison;
}

Summary summarise(const Suite& suite, const std::vector<std::optional<CellResult>>& results) {
  return summarise(compare(suite, results));
}

std::string write_summary(const Summary& summary) {
  using io::OrderedJson;
  OrderedJson object{{"version", kSummaryVersion},
                     {"columns", OrderedJson::array()},
                     {"rows", OrderedJson::array()},
                     {"notes", summary.notes}};
  for (const SummaryColumn& column : summary.columns) {
    object["columns"].push_back({{"key", column.key}, {"title", column.title}, {"help", column.help}});
  }
  for (const SummaryRow& row : summary.rows) {
    OrderedJson cells = OrderedJson::object();
    for (const auto& [key, cell] : row.cells) {
      OrderedJson& entry = cells[key] = {{"text", cell.text}};
      if (cell.value) entry["value"] = io::json_number(*cell.value);
      if (cell.low) entry["low"] = io::json_number(*cell.low);
      if (cell.high) entry["high"] = io::json_number(*cell.high);
    }
    object["rows"].push_back({{"arm", row.arm}, {"cells", std::move(cells)}});
  }
  return object.dump(2) + "\n";
}

Summary read_summary(const std::string& path) {
  return io::read_json_object(io::read_whole_file(path, kLargestSummary), path, [](const io::JsonObject& object) {
    object.check_version(kSummaryVersion);
    Summary summary;
    if (object.has("notes")) summary.notes = object.texts("notes");
    if (object.has("columns")) {
      for (const io::JsonObject& column : object.objects("columns")) {
        const std::string key = column.text("key");
        summary.columns.push_back({key, column.text_if("title").value_or(key), column.text_if("help").value_or("")});
      }
    }
    if (!object.has("rows")) return summary;
    for (const io::JsonObject& row : object.objects("rows")) {
      const std::string arm = row.text("arm");
      SummaryRow& read = summary.rows.emplace_back(SummaryRow{.arm = arm, .label = arm});
      const auto cells = row.object_if("cells");
      if (!cells) continue;
      for (const SummaryColumn& column : summary.columns) {
        const auto cell = cells->object_if(column.key);
        if (!cell) continue;
        read.cells[column.key] = {.text = cell->text_if("text").value_or(""),
                                  .value = cell->number_if("value"),
                                  .low = cell->number_if("low"),
                                  .high = cell->number_if("high")};
      }
    }
    return summary;
  });
}

}  // namespace gnmr::lab

// SPDX-License-Identifier: Apache-2.0
#include "gnmr/report/run_page.h"

#include <algorithm>

#include "gnmr/report/html.h"
#include "gnmr/report/number_format.h"

namespace gnmr::report {
namespace {

std::string step_range(const RunView& run) {
  return "from step " + number_text(run.first_step, 12) + " to step " + number_text(run.last_step, 12);
}

std::string loss_html(const RunView& run, std::size_t index, int level) {
  const LossCurves& losses = run.losses;
  if (losses.train.empty() && losses.eval_high.empty() && losses.eval_low.empty()) return {};
  std::vector<LegendEntry> entries;
  if (!losses.train.empty()) entries.emplace_back("c1", "training, each step");
  if (!losses.eval_high.empty()) entries.emplace_back("c3 with-dot", "held-out, all units in high precision");
  if (!losses.eval_low.empty()) entries.emplace_back("c2 with-dot dashed", "held-out, all units on the low path");
  std::string caption = "Drag the ends of the bar below a chart to look closer; the other charts of the run follow. ";
  const std::size_t bad =
      losses.train.bad_steps.size() + losses.eval_high.bad_steps.size() + losses.eval_low.bad_steps.size();
  if (bad > 0) caption += "Crosses at the top are losses that were not finite. ";
  std::vector<double> values = losses.train.values;
  values.insert(values.end(), losses.eval_low.values.begin(), losses.eval_low.values.end());
  if (losses.ceiling && !values.empty() && *std::max_element(values.begin(), values.end()) > *losses.ceiling) {
    caption += "Losses above " + number_text(*losses.ceiling) + " lie outside the picture.";
  }
  std::string alternative = "Loss over steps " + step_range(run);
  if (!losses.train.values.empty()) {
    alternative += "; training loss from " + number_text(losses.train.values.front()) + " to " +
                   number_text(losses.train.values.back());
  }
  return figure_html({.chart = "loss",
                      .index = index,
                      .height = 320,
                      .title = "Loss on training and held-out data",
                      .before = legend(entries),
                      .caption = caption,
                      .alternative = alternative},
                     level);
}

std::string grad_norm_html(const RunView& run, std::size_t index, int level) {
  const NormCurve& norms = run.grad_norm;
  if (norms.curve.empty()) return {};
  std::vector<LegendEntry> entries{{"c1", "norm of the whole gradient, before clipping"}};
  if (norms.skipped_count > 0) entries.emplace_back("skipped-key", "update skipped");
  std::string caption;
  if (!norms.curve.bad_steps.empty()) caption = "Crosses at the top are norms that were not finite. ";
  if (norms.skipped_count > norms.skipped_steps.size()) {
    caption += "Only the first " + grouped(norms.skipped_steps.size()) + " of " + grouped(norms.skipped_count) +
               " skipped updates are marked.";
  }
  const std::string alternative = "Gradient norm over steps " + step_range(run) + ", logarithmic; " +
                                  counted(norms.skipped_count, "update was skipped", "updates were skipped");
  return figure_html({.chart = "norm",
                      .index = index,
                      .height = 260,
                      .title = "Gradient norm of each step",
                      .before = legend(entries),
                      .caption = caption,
                      .alternative = alternative},
                     level);
}

std::string heat_caption(const HeatMap& heat) {
  const UnitMap& map = heat.map;
  const bool of_errors = heat.kind == MapKind::errors;
  std::string caption = "Each row is a unit, in forward order. ";
  if (of_errors) caption += "Of the GEMMs of a unit the one with the largest error is shown. ";
  if (map.units.size() < map.unit_count) {
    caption +=
        "Of " + grouped(map.unit_count) + " units the " + grouped(map.units.size()) +
        (of_errors ? " that are chronic or had the largest errors are shown. " : " with the most events are shown. ");
  }
  if (map.column_steps > 1) {
    caption += "A column is " + grouped(static_cast<std::uint64_t>(map.column_steps)) + " steps; the " +
               (of_errors ? "largest error" : "ratio farthest from 1") + " stands for them.";
  }
  return caption;
}

std::string map_html(const HeatMap& heat, const RunView& run, std::size_t index, int level) {
  const bool of_errors = heat.kind == MapKind::errors;
  std::vector<LegendEntry> entries{{"box non-finite", "not finite"}};
  if (!heat.chronic.empty()) entries.emplace_back("box chronic-outline", "chronic unit");
  if (!heat.faults.empty()) entries.emplace_back("box fault-outline", "injected fault");
  if (!heat.recoveries.empty()) {
    entries.emplace_back("box recovery-outline", run.watch_only ? "would be in recovery" : "in recovery");
  }
  const std::string what = of_errors ? "Heat map of the errors of " : "Heat map of ";
  const std::string below =
      of_errors ? "chronic units, if any, are listed below" : "the table of events below lists the most severe";
  const double rows = static_cast<double>(heat.units.size());
  return figure_html(
      {.chart = of_errors ? "errors" : "heat",
       .index = index,
       .height = 96 + std::clamp(rows * 16, 60.0, 640.0),
       .title = of_errors ? "Relative error of each unit's low path, as the patrol measured it"
                          : "Gradient norm of each unit, relative to its own mean",
       .before = "<div class=\"keys\">" + (of_errors ? error_scale() : heat_scale()) + legend(entries) + "</div>\n",
       .caption = heat_caption(heat),
       .alternative =
           what + counted(heat.units.size(), "unit", "units") + " over steps " + step_range(run) + "; " + below},
      level);
}

std::string heat_html(const RunView& run, std::size_t index, int level) {
  return (run.heat ? map_html(*run.heat, run, index, level) : "") +
         (run.errors ? map_html(*run.errors, run, index, level) : "");
}

std::string chronic_html(const RunView& run, int level) {
  if (!run.chronic || run.chronic->units.empty()) return {};
  Table table("Chronic units");
  table.column("unit");
  table.column("place", false, "the GEMM in which it is farthest above the median");
  table.column("error", true, "usual one there, when it was largest");
  table.column("× median", true, "this over the median of the units in the same GEMM");
  table.column("time", true, "share of the reviews of its errors in which it was coarse");
  for (const ChronicUnit& unit : run.chronic->units) {
    table.row(
        {unit.name, unit.place, number_text(unit.error, 3), number_text(unit.above, 3), percent_text(unit.share)});
  }
  return "<section class=\"card\">" + heading(level, "Chronic units") +
         paragraph(
             "For most of the run their errors were so far above those of other units that standing recovery "
             "would take them, room given; gnmr plan says which ones to keep in high precision.",
             "caption") +
         table.html() + "</section>\n";
}

std::string timeline_html(const RunView& run, std::size_t index, int level) {
  const Timeline& timeline = *run.journal->timeline;
  std::vector<LegendEntry> entries;
  const auto has = [&](RecoveryEnd end) {
    return std::any_of(timeline.bars.begin(), timeline.bars.end(), [&](const Bar& bar) { return bar.end == end; });
  };
  if (has(RecoveryEnd::released)) entries.emplace_back("box bar released", "in recovery, then released");
  if (has(RecoveryEnd::futile)) entries.emplace_back("box bar futile", "released as bad as before (futile)");
  if (has(RecoveryEnd::open)) entries.emplace_back("box bar open", "still in recovery at the end");
  if (!timeline.denials.empty()) entries.emplace_back("round denied", "denied: no room in the budget");
  std::string caption = run.watch_only ? "Decisions were only written: nothing really ran in high precision. " : "";
  if (timeline.units_left_out > 0) {
    caption += "The " + grouped(timeline.units.size()) + " units with the most recoveries are shown; " +
               grouped(timeline.units_left_out) + " more had some.";
  }
  const std::string alternative = "Timeline of " + counted(timeline.bars.size(), "recovery", "recoveries") + " of " +
                                  counted(timeline.units.size(), "unit", "units") + " " + step_range(run);
  const double rows = static_cast<double>(timeline.units.size());
  return figure_html({.chart = "timeline",
                      .index = index,
                      .height = 60 + std::clamp(rows * 22, 50.0, 900.0),
                      .title = run.watch_only ? "Recoveries that would have been: which unit, and when"
                                              : "Recoveries: which unit ran in high precision, and when",
                      .before = legend(entries),
                      .caption = caption,
                      .alternative = alternative},
                     level);
}

std::string use_html(const RunView& run, std::size_t index, int level) {
  std::uint64_t most = 0;
  for (const InUse& use : run.journal->in_use) most = std::max(most, use.units);
  std::string alternative = "Units in recovery over steps " + step_range(run) + "; at most " + grouped(most);
  if (run.budget) alternative += ", budget " + std::to_string(*run.budget);
  std::vector<LegendEntry> entries{{"box area-key", "units in recovery"}};
  if (run.budget) entries.emplace_back("level-key", "budget");
  return figure_html({.chart = "use",
                      .index = index,
                      .height = 210,
                      .title = "Use of the budget",
                      .before = legend(entries),
                      .alternative = alternative},
                     level);
}

std::string recovery_html(const RunView& run, std::size_t index, int level) {
  std::string html;
  if (run.journal->timeline) {
    html += timeline_html(run, index, level);
  } else {
    html += "<section class=\"card\">" + heading(level, "Recoveries") +
            paragraph("No unit was in recovery, and none was denied.") + "</section>\n";
  }
  if (!run.journal->in_use.empty()) html += use_html(run, index, level);
  return html;
}

std::string events_html(const JournalView& journal, int level) {
  if (journal.events.empty()) return {};
  Table table("Events");
  table.column("step", true);
  table.column("unit");
  table.column("what happened");
  table.column("ratio", true, "gradient norm divided by its mean");
  table.column("rise", true, "ratio above the lowest of the last samples");
  table.column("fall", true, "the same for a fall");
  table.column("severity", true, "above 1: at risk");
  for (const EventRow& event : journal.events) {
    table.row(
        {std::to_string(event.step), event.unit, event.what, event.ratio, event.delta, event.fall, event.severity});
  }
  const std::string shown =
      journal.events.size() < journal.event_count
          ? "The first " + grouped(journal.events.size()) + " of " + grouped(journal.event_count) + "."
          : "All " + grouped(journal.event_count) + ".";
  return "<section class=\"card\">" + heading(level, "Events, the most severe first") + paragraph(shown, "caption") +
         table.html() + "</section>\n";
}

std::string audit_html(const JournalView& journal, int level) {
  if (journal.recoveries.empty()) return {};
  Table table("Recoveries, their worth and their cost");
  table.column("steps", true, "that ran in high precision");
  table.column("unit");
  table.column("verdict", false, "of the rerun of the step that admitted it");
  table.column("place", false, "with the largest error of its low path");
  table.column("error", true, "of its low path there");
  table.column("worth", false, "helpful: the gradient that made the update is 0.1 or more from the alarmed one");
  table.column("loss", true, "of the alarmed step, and of its rerun");
  table.column("distance", true, "how far apart at least the two gradients are, relative to the rerun's");
  table.column("rerun s", true, "its share of the rerun's seconds");
  table.column("high s", true, "what high precision took, estimated");
  table.column("sum s", true, "of both");
  table.column("end");
  const auto add = [&](const AuditRow& row) {
    table.row({row.steps, row.unit, row.verdict, row.place, row.error, row.worth, row.loss, row.distance,
               row.rerun_seconds, row.extra_seconds, row.seconds, row.end});
  };
  for (const AuditRow& row : journal.recoveries) add(row);
  add(sum_row(journal.audit));
  std::string sums = audit_text(journal.audit);
  if (journal.recoveries.size() < journal.audit.recoveries.size()) {
    sums += " The " + grouped(journal.recoveries.size()) + " that cost most are listed; the sums are of all.";
  }
  return "<section class=\"card\">" + heading(level, "Each recovery: its worth and its cost") +
         paragraph(sums, "caption") + table.html() + paragraph(audit_method_text(), "caption") + "</section>\n";
}

std::string worth_html(const JournalView& journal, int level) {
  if (journal.reruns.empty()) return {};
  Table table("Steps that were run again");
  table.column("step", true);
  table.column(
      "verdict", false,
      "numeric: low paths are at fault; common: high precision shows it too; unlocated: it does not, and no unit "
      "is an outlier");
  table.column("worth", false, "helpful: the gradient that made the update is 0.1 or more from the alarmed one");
  table.column("unit", false, "with the largest error over its limit");
  table.column("place");
  table.column("error", true, "of its low path, and how many times its limit");
  table.column("loss", true, "of the alarmed step");
  table.column("in rerun", true, "loss of the rerun");
  table.column("distance", true, "how far apart at least the two gradients are, relative to the rerun's");
  table.column("seconds", true, "that the rerun took");
  for (const RerunRow& row : journal.reruns) {
    table.row({std::to_string(row.step), row.verdict, row.outcome, row.units, row.place, row.error, row.loss,
               row.rerun_loss, row.distance, row.seconds});
  }
  std::string sums = worth_text(journal.worth);
  if (journal.reruns.size() < journal.worth.reruns) {
    sums += " The first " + grouped(journal.reruns.size()) + " of " + grouped(journal.worth.reruns) + " are listed.";
  }
  return "<section class=\"card\">" + heading(level, "What recovery was worth: steps that were run again") +
         paragraph(sums, "caption") + table.html() + "</section>\n";
}

std::string journal_html(const RunView& run, std::size_t index, int level) {
  if (!run.journal) return {};
  return recovery_html(run, index, level) + events_html(*run.journal, level) + audit_html(*run.journal, level) +
         worth_html(*run.journal, level);
}

std::string notes_html(const RunView& run, int level) {
  if (run.notes.empty()) return {};
  return "<section class=\"card\">" + heading(level, "Notes of the run") + bullet_list(run.notes) + "</section>\n";
}

std::string settings_html(const RunView& run) {
  if (run.settings.empty()) return {};
  Table table("Settings");
  table.column("setting");
  table.column("value");
  for (const auto& [name, value] : run.settings) table.row({name, value});
  return "<details class=\"card\"><summary>Settings of the run</summary>" + table.html() + "</details>\n";
}

}  // namespace

std::string facts_html(const std::vector<Fact>& facts) {
  if (facts.empty()) return {};
  std::string html = "<dl class=\"facts\">\n";
  for (const Fact& fact : facts) {
    html += "<div><dt>" + escaped(fact.name) + "</dt><dd>" + escaped(fact.value) + "</dd>";
    if (!fact.note.empty()) html += "<dd class=\"note\">" + escaped(fact.note) + "</dd>";
    html += "</div>\n";
  }
  return html + "</dl>\n";
}

std::string run_html(const RunView& run, std::size_t index, int level) {
  return facts_html(run.facts) + bullet_list(run.remarks, "remarks") + loss_html(run, index, level) +
         grad_norm_html(run, index, level) + heat_html(run, index, level) + chronic_html(run, level) +
         journal_html(run, index, level) + notes_html(run, level) + settings_html(run);
}

}  // namespace gnmr::report

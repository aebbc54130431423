// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "gnmr/report/audit.h"
#include "gnmr/report/number_format.h"

namespace gnmr::report {
namespace {

std::string seconds_text(double seconds) { return number_text(seconds, 3); }

std::string steps_text(const Recovery& recovery) {
  if (recovery.end == RecoveryEnd::open) return fmt::format("{} on", recovery.first_step);
  if (recovery.first_step == recovery.last_step) return std::to_string(recovery.first_step);
  return fmt::format("{} to {}", recovery.first_step, recovery.last_step);
}

std::string difference_text(const std::optional<double>& before, const std::optional<double>& after) {
  return before && after ? number_text(*before) + " → " + number_text(*after) : std::string();
}

std::string worth_of_reruns(const Audit& audit) {
  if (audit.rerun == 0) return " No step that admitted a unit was run again, so what they were worth was not measured.";
  std::string text = " For " + grouped(audit.rerun) + " the step was run again: " + grouped(audit.helpful) +
                     " helpful, " + grouped(audit.slight) + " slight.";
  if (audit.losses > 0) {
    text += " The losses of " + counted(audit.losses, "such step", "such steps") + " were together " +
            number_text(audit.loss_difference) + " above those of the reruns.";
  }
  if (audit.not_finite > 0) {
    text +=
        " In " + counted(audit.not_finite, "step", "steps") + " the loss was not finite, and that of the rerun was.";
  }
  return text;
}

/// Letters, not bytes: what a terminal has columns for.
std::size_t width_of(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(
      text.begin(), text.end(), [](char byte) { return (static_cast<unsigned char>(byte) & 0xC0U) != 0x80U; }));
}

constexpr std::size_t kColumns = 10;
constexpr std::size_t kFirstNumber = 6;  // from here on columns are numbers, and stand to the right
using Cells = std::array<std::string, kColumns>;

Cells cells_of(const AuditRow& row) {
  return {row.steps, row.unit, row.verdict,  row.place,         row.worth,
          row.end,   row.loss, row.distance, row.rerun_seconds, row.extra_seconds};
}

}  // namespace

AuditRow audit_row(const RecoveryAudit& recovery) {
  static constexpr std::array<const char*, 3> kEnds{"released", "futile", "open"};
  const std::string none = "not run again";
  AuditRow row{.steps = steps_text(recovery.recovery),
               .unit = recovery.unit,
               .verdict = recovery.outcome ? recovery.verdict : none,
               .end = kEnds[static_cast<std::size_t>(recovery.recovery.end)]};
  row.place = recovery.place;
  if (recovery.error) row.error = number_text(*recovery.error, 3);
  row.worth = recovery.outcome ? std::string(to_string(*recovery.outcome)) : "not measured";
  row.loss = difference_text(recovery.loss, recovery.rerun_loss);
  if (recovery.distance) row.distance = number_text(*recovery.distance, 3);
  if (recovery.outcome) row.rerun_seconds = seconds_text(recovery.rerun_seconds);
  if (recovery.extra_seconds) row.extra_seconds = seconds_text(*recovery.extra_seconds);
  if (recovery.outcome || recovery.extra_seconds) row.seconds = seconds_text(recovery.seconds());
  return row;
}

AuditRow sum_row(const Audit& audit) {
  AuditRow row{.steps = "sum", .unit = counted(audit.recoveries.size(), "recovery", "recoveries")};
  row.worth = grouped(audit.helpful) + " helpful";
  row.rerun_seconds = seconds_text(audit.rerun_seconds);
  if (audit.timed > 0) row.extra_seconds = seconds_text(audit.extra_seconds);
  row.seconds = seconds_text(audit.rerun_seconds + audit.extra_seconds);
  return row;
}

std::string audit_text(const Audit& audit) {
  if (audit.recoveries.empty() && audit.other_reruns == 0) return "No unit was in recovery.";
  std::string text = counted(audit.recoveries.size(), "recovery", "recoveries") + "." + worth_of_reruns(audit);
  text += " Cost: " + duration_text(audit.rerun_seconds) + " in reruns that admitted units, " +
          duration_text(audit.other_seconds) + " in " + grouped(audit.other_reruns) + " that admitted none, ";
  text += audit.timed > 0 ? "about " + duration_text(audit.extra_seconds) + " in high precision"
                          : std::string("what high precision took is not known");
  if (audit.timed > 0 && audit.timed < audit.recoveries.size()) {
    text += " (known of " + grouped(audit.timed) + " recoveries)";
  }
  text += "; together " + duration_text(audit.seconds());
  if (audit.share) text += ", " + percent_text(*audit.share) + " of the time in steps";
  return text + ".";
}

std::string audit_method_text() {
  return "Worth is what the rerun of the admitting step measured. A rerun's seconds are shared equally by the units "
         "that it admitted. What high precision took is estimated: a step's seconds without reruns, less the median of "
         "the last " +
         std::to_string(kUsualSteps) +
         " steps before the recovery with no unit in recovery, shared by the units in recovery by their cost; below 0 "
         "if the low path is the slower one. What the steps of a recovery would have been without it is not "
         "measured.";
}

std::vector<std::string> audit_lines(const Audit& audit, const std::vector<RecoveryAudit>& listed) {
  if (audit.recoveries.empty()) return {};
  std::vector<Cells> rows{
      {"steps", "unit", "verdict", "place", "worth", "end", "loss", "distance", "rerun s", "high s"}};
  for (const RecoveryAudit& recovery : listed) rows.push_back(cells_of(audit_row(recovery)));
  rows.push_back(cells_of(sum_row(audit)));
  std::array<std::size_t, kColumns> widths{};
  for (Cells& row : rows) {
    for (std::size_t column = 0; column < kColumns; ++column) {
      if (row[column].empty() && &row != &rows.back()) row[column] = "–";
      widths[column] = std::max(widths[column], width_of(row[column]));
    }
  }
  std::vector<std::string> lines;
  for (const Cells& row : rows) {
    std::string line;
    for (std::size_t column = 0; column < kColumns; ++column) {
      const std::string blanks(widths[column] - width_of(row[column]), ' ');
      line += "  " + (column >= kFirstNumber ? blanks + row[column] : row[column] + blanks);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    lines.push_back(line);
  }
  return lines;
}

}  // namespace gnmr::report

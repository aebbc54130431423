// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <limits>

#include "gnmr/io/json.h"
#include "gnmr/report/story.h"

namespace gnmr::report {
namespace {

using io::json_number;
using Json = io::OrderedJson;

Json numbers(const std::vector<double>& values) {
  Json list = Json::array();
  for (const double value : values) list.push_back(json_number(value));
  return list;
}

void put_if_known(Json& object, const char* key, const std::optional<double>& value) {
  if (value) object[key] = json_number(*value);
}

template <typename Value>
void put_if_any(Json& object, const char* key, const Value& value) {
  if (value != Value{}) object[key] = value;
}

Json norms_json(const io::JournalEvent& event) {
  Json object{{"unit", event.unit}};
  put_if_known(object, "ratio", event.ratio);
  put_if_known(object, "delta", event.delta);
  put_if_known(object, "fall", event.fall);
  put_if_known(object, "severity", event.severity);
  return object;
}

Json rerun_json(const io::JournalTrial& trial) {
  Json object{{"rerun", trial.rerun}, {"verdict", trial.verdict}, {"outcome", to_string(outcome_of(trial))}};
  object["units"] = trial.units;
  put_if_any(object, "places", trial.places);
  object["errors"] = numbers(trial.errors);
  if (!trial.excesses.empty()) object["excesses"] = numbers(trial.excesses);
  object["losses"] = numbers(trial.losses);
  if (!trial.norms.empty()) object["norms"] = numbers(trial.norms);
  put_if_known(object, "distance", trial.distance);
  object["seconds"] = json_number(trial.seconds);
  if (trial.rank) object["rank"] = *trial.rank;
  if (trial.applied) object["applied"] = *trial.applied;
  return object;
}

const char* end_name(RecoveryEnd end) {
  static constexpr std::array<const char*, 3> kEnds{"released", "futile", "open"};
  return kEnds[static_cast<std::size_t>(end)];
}

Json admission_json(const Admission& admission) {
  Json object = norms_json(admission.event);
  object["by"] = admission.by_error ? "error" : "norm";
  object["lock_steps"] = admission.event.left;
  object["first_step"] = admission.recovery.first_step;
  object["last_step"] = admission.recovery.last_step;
  object["end"] = end_name(admission.recovery.end);
  object["relapse"] = admission.relapse;
  if (admission.released_before) object["released_before"] = *admission.released_before;
  return object;
}

Json episode_json(const Episode& episode) {
  Json object{{"kind", to_string(episode.kind)}};
  if (episode.first_step != std::numeric_limits<std::int64_t>::min()) {
    object["first_step"] = episode.first_step;
    object["last_step"] = episode.last_step;
  }
  put_if_any(object, "text", episode.text);
  put_if_any(object, "risks", episode.risks);
  if (episode.worst_risk) object["worst_risk"] = norms_json(*episode.worst_risk);
  for (const io::JournalTrial& trial : episode.reruns) object["reruns"].push_back(rerun_json(trial));
  put_if_any(object, "standing_out", episode.outliers);
  for (const Admission& admission : episode.admitted) object["admitted"].push_back(admission_json(admission));
  put_if_any(object, "admitted_count", episode.admitted_count);
  put_if_any(object, "denied", episode.denied);
  put_if_any(object, "denied_count", episode.denied_count);
  return object;
}

Json worth_json(const RerunWorth& worth) {
  Json object{{"reruns", worth.reruns},           {"replays", worth.replays},
              {"helpful", worth.helpful},         {"slight", worth.slight},
              {"unmeasured", worth.unmeasured},   {"wasted", worth.wasted},
              {"unlocated", worth.unlocated},     {"other", worth.other},
              {"not_applied", worth.not_applied}, {"seconds", json_number(worth.seconds)}};
  put_if_known(object, "step_seconds", worth.step_seconds);
  put_if_known(object, "share_of_step_seconds", worth.share);
  return object;
}

Json recovery_json(const RecoveryAudit& audit) {
  Json object{{"unit", audit.unit},
              {"first_step", audit.recovery.first_step},
              {"last_step", audit.recovery.last_step},
              {"end", end_name(audit.recovery.end)}};
  if (audit.recovery.admitted_step) object["admitted_step"] = *audit.recovery.admitted_step;
  put_if_any(object, "verdict", audit.verdict);
  put_if_any(object, "place", audit.place);
  put_if_known(object, "error", audit.error);
  if (audit.outcome) object["outcome"] = to_string(*audit.outcome);
  put_if_known(object, "loss", audit.loss);
  put_if_known(object, "rerun_loss", audit.rerun_loss);
  put_if_known(object, "distance", audit.distance);
  object["rerun_seconds"] = json_number(audit.rerun_seconds);
  put_if_known(object, "high_seconds", audit.extra_seconds);
  return object;
}

Json audit_json(const Audit& audit) {
  Json object{{"recoveries", audit.recoveries.size()},
              {"rerun", audit.rerun},
              {"helpful", audit.helpful},
              {"slight", audit.slight},
              {"loss_difference", json_number(audit.loss_difference)},
              {"losses", audit.losses},
              {"not_finite", audit.not_finite},
              {"rerun_seconds", json_number(audit.rerun_seconds)},
              {"other_reruns", audit.other_reruns},
              {"other_rerun_seconds", json_number(audit.other_seconds)}};
  if (audit.timed > 0) object["high_seconds"] = json_number(audit.extra_seconds);
  object["timed"] = audit.timed;
  object["seconds"] = json_number(audit.seconds());
  put_if_known(object, "share_of_step_seconds", audit.share);
  return object;
}

Json chronic_json(const ChronicUnits& chronic) {
  Json list = Json::array();
  for (const ChronicUnit& unit : chronic.units) {
    list.push_back({{"unit", unit.name},
                    {"place", unit.place},
                    {"error", json_number(unit.error)},
                    {"above_median", json_number(unit.above)},
                    {"share_of_reviews", unit.share}});
  }
  return list;
}

Json summary_json(const StorySummary& summary) {
  Json object{{"name", summary.name}, {"steps", summary.steps}};
  if (summary.steps > 0) {
    object["first_step"] = summary.first_step;
    object["last_step"] = summary.last_step;
  }
  object["units"] = summary.units;
  if (summary.budget) object["budget"] = *summary.budget;
  object["watch_only"] = summary.watch_only;
  put_if_any(object, "mode", summary.mode);
  object["mode_changes"] = summary.mode_changes;
  object["alarmed_steps"] = summary.alarms.steps;
  object["risks"] = summary.alarms.risks;
  object["dismissed"] = summary.alarms.dismissed;
  object["spent"] = summary.alarms.spent;
  object["capped"] = summary.alarms.capped;
  object["verdicts"] = Json::object();
  for (const auto& [verdict, count] : summary.verdicts) object["verdicts"][verdict] = count;
  object["recoveries"] = summary.recoveries.all;
  object["by_error"] = summary.recoveries.by_error;
  object["standing"] = summary.recoveries.standing;
  object["futile"] = summary.recoveries.futile;
  object["relapses"] = summary.recoveries.relapses;
  object["open"] = summary.recoveries.open;
  object["denials"] = summary.denials;
  object["common_steps"] = summary.common_steps;
  object["mean_share_in_recovery"] = summary.share.mean;
  object["peak_share_in_recovery"] = summary.share.peak;
  if (summary.share.high) {
    object["high_shares"] = {{"acute", summary.share.high->acute},
                             {"standing", summary.share.high->standing},
                             {"reruns", summary.share.high->reruns}};
  }
  const std::optional<ChronicUnits>& chronic = summary.errors.chronic;
  if (chronic && chronic->reviews > 0) object["chronic_units"] = chronic_json(*chronic);
  put_if_any(object, "errors_problem", summary.errors.problem);
  object["worth"] = worth_json(summary.worth);
  object["resumes"] = summary.resumes;
  object["dropped_lines"] = summary.dropped;
  object["torn"] = summary.torn;
  return object;
}

}  // namespace

std::string story_json(const Story& story) {
  Json episodes = Json::array();
  for (const Episode& episode : story.episodes) episodes.push_back(episode_json(episode));
  Json recoveries = Json::array();
  for (const RecoveryAudit& recovery : story.recoveries) recoveries.push_back(recovery_json(recovery));
  const Json object{{"summary", summary_json(story.summary)}, {"audit", audit_json(story.audit)},
                    {"recovery_count", story.recovery_count}, {"recoveries", std::move(recoveries)},
                    {"episode_count", story.episode_count},   {"episodes", std::move(episodes)}};
  return object.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace gnmr::report

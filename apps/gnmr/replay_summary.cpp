// SPDX-License-Identifier: Apache-2.0
#include "gnmr/replay_summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "gnmr/core/message_text.h"
#include "gnmr/io/json_text.h"
#include "gnmr/messages.h"

namespace gnmr::app {
namespace {

constexpr std::size_t kListedUnits = 10;

double per(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

std::string percent(double share) { return fmt::format("{:.2f}%", 100 * share); }

std::string percent_or_none(double share) { return share == share ? percent(share) : "none"; }

}  // namespace

ReplaySummary::ReplaySummary(const Controller& controller)
    : budget_(controller.max_recovered()), risks_by_unit_(controller.units().size(), 0) {
  for (const Unit& unit : controller.units()) names_.push_back(unit.name);
}

void ReplaySummary::add(const Alarm& alarm, const Decision& decision) {
  ++steps_;
  sampled_ += alarm.sampled;
  non_finite_ += alarm.sampled - alarm.finite;
  risks_ += alarm.risks.size();
  for (const UnitIndex unit : alarm.risks) ++risks_by_unit_[unit];
  recoveries_ += decision.admitted.size();
  denials_ += decision.denied.size();
  futile_ += decision.futile.size();
  common_ += decision.common ? 1 : 0;
  recovered_sum_ += decision.recovered.size();
  recovered_peak_ = std::max<std::uint64_t>(recovered_peak_, decision.recovered.size());
}

double ReplaySummary::risks_per_thousand() const { return 1000 * per(risks_, sampled_); }
double ReplaySummary::mean_share() const { return per(recovered_sum_, steps_ * names_.size()); }
double ReplaySummary::peak_share() const { return per(recovered_peak_, names_.size()); }

std::vector<UnitIndex> ReplaySummary::most_often_at_risk() const {
  std::vector<UnitIndex> order(names_.size());
  std::iota(order.begin(), order.end(), UnitIndex{0});
  const std::size_t listed = std::min(kListedUnits, order.size());
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(listed), order.end(),
                    [this](UnitIndex a, UnitIndex b) {
                      return risks_by_unit_[a] != risks_by_unit_[b] ? risks_by_unit_[a] > risks_by_unit_[b] : a < b;
                    });
  order.resize(listed);
  std::erase_if(order, [this](UnitIndex unit) { return risks_by_unit_[unit] == 0; });
  return order;
}

std::string ReplaySummary::text(const lab::DetectionScore* score, const std::string& run) const {
  std::string out;
  const auto line = [&out](const char* name, const std::string& value) {
    out += fmt::format("{:<34}{}\n", name, value);
  };
  if (!run.empty()) line("run", printable(run));
  line("steps", fmt::format("{}", steps_));
  line("units", fmt::format("{} (budget: {} in recovery at one time)", names_.size(), budget_));
  line("risks",
       fmt::format("{} ({:.2f} per thousand unit-steps; {} not finite)", risks_, risks_per_thousand(), non_finite_));
  line("recoveries", fmt::format("{} ({} futile)", recoveries_, futile_));
  line("denials", fmt::format("{}", denials_));
  line("share in recovery", fmt::format("mean {}, peak {} ({})", percent(mean_share()), percent(peak_share()),
                                        counted(recovered_peak_, "unit")));
  line("common steps", fmt::format("{}", common_));
  if (score != nullptr) {
    line("faults found (recall)",
         fmt::format("{} of {} ({})", score->found(), score->faults(), percent_or_none(score->recall())));
    line("admissions in a fault (precision)", fmt::format("{} of {} ({})", score->true_admissions(),
                                                          score->admissions(), percent_or_none(score->precision())));
    const double delay = score->mean_delay();
    line("mean delay", delay == delay ? fmt::format("{:.2f} steps", delay) : "none");
  }
  const std::vector<UnitIndex> listed = most_often_at_risk();
  if (listed.empty()) return out;
  out += "most often at risk:\n";
  for (const UnitIndex unit : listed)
    out += fmt::format("  {:>8}  {}\n", risks_by_unit_[unit], printable(names_[unit]));
  return out;
}

std::string ReplaySummary::json(const lab::DetectionScore* score, const std::string& run) const {
  std::string out = "{";
  if (!run.empty()) {
    out += "\"run\":";
    io::append_json_string(out, run);
  }
  const auto field = [&out](const char* name, auto value) {
    if (out.size() > 1) out += ',';
    io::append_json_string(out, name);
    out += ':';
    io::append_json_number(out, value);
  };
  field("steps", steps_);
  field("units", std::uint64_t{names_.size()});
  field("max_recovered", std::uint64_t{budget_});
  field("sampled_unit_steps", sampled_);
  field("risks", risks_);
  field("risks_per_thousand_unit_steps", risks_per_thousand());
  field("non_finite", non_finite_);
  field("recoveries", recoveries_);
  field("denials", denials_);
  field("futile", futile_);
  field("common_steps", common_);
  field("mean_share_in_recovery", mean_share());
  field("peak_share_in_recovery", peak_share());
  if (score != nullptr) {
    field("faults", score->faults());
    field("faults_found", score->found());
    field("true_admissions", score->true_admissions());
    field("recall", score->recall());
    field("precision", score->precision());
    field("mean_delay_steps", score->mean_delay());
  }
  out += ",\"most_often_at_risk\":[";
  const char* separator = "";
  for (const UnitIndex unit : most_often_at_risk()) {
    out += separator;
    out += "{\"unit\":";
    io::append_json_string(out, names_[unit]);
    out += ",\"risks\":";
    io::append_json_number(out, risks_by_unit_[unit]);
    out += '}';
    separator = ",";
  }
  out += "]}\n";
  return out;
}

}  // namespace gnmr::app

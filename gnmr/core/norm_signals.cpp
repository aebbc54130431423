// SPDX-License-Identifier: Apache-2.0
#include "gnmr/core/norm_signals.h"

#include <string>

#include "gnmr/core/error.h"
#include "gnmr/core/message_text.h"

namespace gnmr {
namespace {

/// Whether the cause of the risks is common to the units.
bool is_common(double common_share, const History::Findings& findings) {
  constexpr std::uint32_t kFewest = 10;
  if (common_share >= 1) return false;
  if (findings.finite >= kFewest) {
    return static_cast<double>(findings.finite_risks) > common_share * static_cast<double>(findings.finite);
  }
  return findings.sampled >= kFewest && findings.finite == 0;
}

}  // namespace

NormSignals::NormSignals(const std::vector<Unit>& units, const Options& options)
    : units_(units), common_share_(options.common_share), history_(units.size(), options) {}

void NormSignals::check_sizes(const Observation& observation) const {
  const auto number = [](auto value) { return std::to_string(value); };
  const std::size_t count = units_.size();
  if (observation.norms.size() != count) {
    reject_step(observation.step, number(count) + " norms, got " + number(observation.norms.size()));
  }
  if (!observation.sampled.empty() && observation.sampled.size() != count) {
    reject_step(observation.step,
                "a mask of " + number(count) + " units or none, got " + number(observation.sampled.size()));
  }
}

void NormSignals::reject_norm(const Observation& observation, std::size_t unit) const {
  reject_step(observation.step, "norms that are not negative, got " + shortest_text(observation.norms[unit]) +
                                    " for unit `" + units_[unit].name + "`");
}

void NormSignals::check(const Observation& observation) const {
  check_sizes(observation);
  for (std::size_t unit = 0; unit < observation.norms.size(); ++unit) {
    const bool sampled = observation.sampled.empty() || observation.sampled[unit] != 0;
    if (sampled && observation.norms[unit] < 0) reject_norm(observation, unit);
  }
}

const Alarm& NormSignals::observe(const Observation& observation) {
  check_sizes(observation);
  const History::Findings& findings = history_.observe(observation);
  if (findings.negative_unit < units_.size()) {
    alarm_ = {};
    reject_norm(observation, findings.negative_unit);
  }
  findings_ = &findings;
  alarm_ = {.step = observation.step,
            .sampled = findings.sampled,
            .finite = findings.finite,
            .centre = findings.centre,
            .common = is_common(common_share_, findings),
            .risks = findings.risks};
  return alarm_;
}

void NormSignals::discard() {
  history_.discard_observation();
  alarm_ = {};
}

Candidate NormSignals::candidate(std::size_t index) const {
  const UnitIndex unit = alarm_.risks[index];
  return {.severity = findings_->records[index].severity, .unit = unit, .kind = history_.risk(unit)};
}

bool NormSignals::counts(std::size_t index, std::uint32_t doubt) const {
  return doubt == 1 || findings_->records[index].severity > doubt;
}

}  // namespace gnmr

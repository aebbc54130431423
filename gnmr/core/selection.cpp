// SPDX-License-Identifier: Apache-2.0
#include "gnmr/core/selection.h"

#include <algorithm>
#include <cmath>

#include "gnmr/core/error.h"

namespace gnmr {

Selector selector_in_force(const Options& options, const Backend& backend) {
  if (backend.sites == 0) return Selector::norms;
  if (options.selector == Selector::automatic) return backend.can_rerun ? Selector::trial : Selector::norms;
  if (options.selector == Selector::trial && !backend.can_rerun) {
    throw Error("option `selector`: `trial` needs a backend that can run a step again");
  }
  return options.selector;
}

Guard guard_in_force(const Options& options, const Backend& backend) {
  if (!backend.can_hold) return Guard::none;
  if (options.guard == Guard::replay && !backend.can_rerun) {
    throw Error("option `guard`: `replay` needs a backend that can run a step again");
  }
  return options.guard;
}

Selection::Selection(Selector selector, Guard guard, const NormSignals& signals, const ErrorHistory& errors,
                     const Budget& budget)
    : selector_(selector), guard_(guard), signals_(signals), errors_(errors), budget_(budget) {
  const std::size_t units = signals.unit_count();
  by_errors_.reserve(units);
  guarded_.reserve(units);
  candidates_.reserve(units);
  asking_.reserve(units);
}

void Selection::find_candidates(std::span<const Finding> findings, ErrorsThatAsk asking) {
  by_errors_.clear();
  for (const Finding& finding : findings) {
    if (!budget_.is_candidate(finding.unit)) continue;
    if (asking == ErrorsThatAsk::clear && !(finding.excess > kPatrolMargin)) continue;
    if (asking == ErrorsThatAsk::infinite && !errors_.had_infinite(finding.unit)) continue;
    by_errors_.push_back({.severity = finding.excess, .unit = finding.unit, .kind = RiskKind::error});
  }
  has_free_finding_ = !by_errors_.empty();
}

bool Selection::has_free_risk(std::uint32_t doubt) const {
  const std::span<const UnitIndex> risks = signals_.alarm().risks;
  for (std::size_t index = 0; index < risks.size(); ++index) {
    if (signals_.counts(index, doubt) && budget_.is_candidate(risks[index])) return true;
  }
  return false;
}

/// Whether every unit that could be admitted has been measured.
bool Selection::is_complete() const {
  for (UnitIndex unit = 0; unit < signals_.unit_count(); ++unit) {
    const bool sampled = signals_.history().saw_sample(unit);
    if (sampled && !errors_.was_measured(unit) && budget_.is_candidate(unit)) return false;
  }
  return true;
}

const Request& Selection::choose(bool may_rerun, std::uint32_t doubt) {
  request_ = {};
  doubt_ = doubt;
  basis_ = Basis::nobody;
  guarded_.clear();
  if (by_errors_.empty() && signals_.alarm().risks.empty()) return request_;  // a calm step
  const bool by_errors = selector_ != Selector::norms;
  request_.alarmed = (by_errors && has_free_finding_) || has_non_finite_risk();
  if (!request_.alarmed && has_free_risk(doubt_)) {
    request_.dismissed = by_errors && is_complete();
    request_.alarmed = !request_.dismissed;
  }
  choose_basis();
  const bool trial_is_due = selector_ == Selector::trial && request_.alarmed;
  const bool replay_is_due = guard_ == Guard::replay && !trial_is_due && !guarded_.empty();
  request_.wants_trial = trial_is_due && may_rerun && trial_pays();
  request_.wants_replay = replay_is_due && may_rerun;
  request_.spent = (trial_is_due && !request_.wants_trial) || (replay_is_due && !may_rerun);
  request_.holds = guard_ == Guard::skip && !guarded_.empty();
  request_.clips = guard_ == Guard::clip && !guarded_.empty();
  return request_;
}

bool Selection::trial_pays() const {
  const bool makes_update = guard_ == Guard::skip;  // which there would not be without it
  return makes_update || !has_free_finding_ || has_non_finite_risk() || !budget_.is_full_for(1);
}

/// Who decides where no trial does, and which units the guard looks at.
void Selection::choose_basis() {
  switch (selector_) {
    case Selector::automatic:
    case Selector::norms:
      basis_ = Basis::norms;
      break;
    case Selector::evidence:
      basis_ = Basis::errors;
      break;
    case Selector::evidence_after_alarm:
      basis_ = signals_.alarm().raised() ? Basis::errors : Basis::nobody;
      break;
    case Selector::trial:
      basis_ = !request_.alarmed ? Basis::nobody : has_free_finding_ ? Basis::errors : Basis::norms;
      break;
  }
  if (guard_ == Guard::none) return;
  if (basis_ == Basis::errors) {
    for (const Candidate& candidate : by_errors_) guarded_.push_back(candidate.unit);
  } else if (basis_ == Basis::norms && !signals_.alarm().common) {
    const std::span<const UnitIndex> risks = signals_.alarm().risks;
    for (std::size_t index = 0; index < risks.size(); ++index) {
      if (signals_.counts(index, doubt_) && budget_.is_candidate(risks[index])) guarded_.push_back(risks[index]);
    }
  }
}

void Selection::ask_nobody() {
  basis_ = Basis::nobody;
  by_errors_.clear();
}

bool Selection::is_common() const { return signals_.alarm().common && (basis_ != Basis::errors || by_errors_.empty()); }

std::span<Candidate> Selection::candidates() {
  candidates_.clear();
  asking_.clear();
  if (basis_ == Basis::errors) {
    candidates_ = by_errors_;
  } else if (basis_ == Basis::norms && !signals_.alarm().common) {
    for (std::size_t index = 0; index < signals_.alarm().risks.size(); ++index) {
      if (!signals_.counts(index, doubt_)) continue;
      const Candidate candidate = signals_.candidate(index);
      if (budget_.is_candidate(candidate.unit)) candidates_.push_back(candidate);
    }
  }
  for (const Candidate& candidate : candidates_) asking_.push_back(candidate.unit);
  return candidates_;
}

void Selection::set_clip(const NormSpan& norms, std::vector<double>& clip) const {
  std::fill(clip.begin(), clip.end(), 1.0);
  for (const UnitIndex unit : guarded_) {
    if (!signals_.history().saw_sample(unit)) continue;
    const double norm = norms[unit];
    const double mean = signals_.history().mean(unit);
    if (!std::isfinite(norm)) {
      clip[unit] = 0;
    } else if (mean > 0 && norm > mean) {
      clip[unit] = mean / norm;
    }
  }
}

}  // namespace gnmr

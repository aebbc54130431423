// The naive second implementation of docs/algorithm.md: see naive_controller.h. Quoted comments are sentences of that
// page. SPDX-License-Identifier: Apache-2.0
#include "naive_controller.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <stdexcept>
#include <utility>

namespace gnmr::naive {
namespace {

constexpr double kLargest = 1e30;
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kSmallestWeight = 0x1p-60;
constexpr std::int64_t kCentreScale = std::int64_t{1} << 20;
constexpr std::int64_t kLargestInteger = (std::int64_t{1} << 31) - 1;
constexpr std::int64_t kLargestTotalCost = std::int64_t{1} << 53;
constexpr std::int64_t kCommonUnits = 10;

void require(bool holds, const std::string& what) {
  if (!holds) {
    throw std::invalid_argument(what);
  }
}

void check_real(double value, bool in_range, const std::string& name) {
  require(std::isfinite(value) && in_range, name);
}

void check_integer(std::int64_t value, std::int64_t lowest, std::int64_t highest, const std::string& name) {
  require(value >= lowest && value <= highest, name);
}

// A norm that is finite and not 0.
bool is_number(const std::optional<double>& norm) { return norm && std::isfinite(*norm) && *norm != 0; }

}  // namespace

Controller::Controller(std::vector<Unit> units, Options options)
    : units_(std::move(units)), options_(options), histories_(units_.size()), recoveries_(units_.size()) {
  check_options();
  check_units();
  set_limits();
}

Decision Controller::step(const std::vector<std::optional<double>>& norms) {
  Decision decision = observe(norms);
  decide(norms, decision, std::nullopt);
  return decision;
}

Decision Controller::observe(const std::vector<std::optional<double>>& norms) {
  require(norms.size() == units_.size(), "norms: one per unit");
  // "A negative norm, -infinity included, is an error, and no state of any unit changes."
  for (const std::optional<double>& norm : norms) {
    require(!(norm && *norm < 0), "negative norm");
  }
  Decision decision;
  decision.signals.resize(units_.size());
  for (std::size_t unit = 0; unit < units_.size(); ++unit) {
    decision.signals[unit] = pass_1_ratio(unit, norms[unit]);
  }
  decision.centre = centre_of(norms, decision.signals);
  for (std::size_t unit = 0; unit < units_.size(); ++unit) {
    if (is_number(norms[unit])) {
      pass_2_changes(unit, *norms[unit], decision.centre, decision.signals[unit]);
    }
  }
  decision.common = is_common(norms, decision.signals);
  return decision;
}

void Controller::decide(const std::vector<std::optional<double>>& norms, Decision& decision,
                        const std::optional<std::vector<Candidate>>& given, const std::optional<Review>& review,
                        std::int64_t doubt) {
  fill_bucket();
  count_samples(decision.signals);
  release(norms, review, decision);
  admit(given ? *given : candidates_by_norms(decision, doubt), decision);
  // "3. After point 4 a review admits units that are coarse ..." "4. Then it admits units that fill, likewise"
  if (review) {
    admit_standing(*review, RiskKind::coarse, decision);
    admit_standing(*review, RiskKind::fill, decision);
  }
  list_recoveries(decision);
  decisions_ = decisions_ + 1;
}

// The column "range" of the table of options, in its order.
void Controller::check_options() const {
  const Options& o = options_;
  check_real(o.beta, o.beta >= 0 && o.beta < 1, "beta");
  check_real(o.tau, o.tau >= 1, "tau");
  check_real(o.delta_tau, o.delta_tau >= 1e-6, "delta_tau");
  check_real(o.fall_tau, o.fall_tau == 0 || o.fall_tau >= 1e-6, "fall_tau");
  check_real(o.baseline, o.baseline >= 0 && o.baseline <= 1, "baseline");
  check_integer(o.window, 1, 1024, "window");
  check_real(o.noise_factor, o.noise_factor >= 0, "noise_factor");
  check_real(o.noise_beta, o.noise_beta >= 0 && o.noise_beta < 1, "noise_beta");
  check_real(o.mean_cap, o.mean_cap == 0 || o.mean_cap > 1, "mean_cap");
  check_integer(o.warmup_samples, 1, kLargestInteger, "warmup_samples");
  check_real(o.common_share, o.common_share > 0 && o.common_share <= 1, "common_share");
  check_integer(o.lock_steps, 1, kLargestInteger, "lock_steps");
  check_integer(o.max_lock_steps, 0, kLargestInteger, "max_lock_steps");
  check_integer(o.cooldown_steps, 0, kLargestInteger, "cooldown_steps");
  const bool fraction = o.max_o > 0 && o.max_o < 1;
  const bool whole = o.max_o >= 0 && o.max_o <= static_cast<double>(kLargestInteger) && std::floor(o.max_o) == o.max_o;
  check_real(o.max_o, fraction || whole, "max_o");
  check_real(o.max_cost, o.max_cost > 0 && o.max_cost <= 1, "max_cost");
  check_integer(o.group_max, 0, kLargestInteger, "group_max");
  check_real(o.max_high_share, o.max_high_share > 0 && o.max_high_share <= 1, "max_high_share");
  check_integer(o.lag, 0, 1, "lag");
  require(o.lag < o.lock_steps, "lag");
  const std::set<std::string> selectors = {"auto", "norms", "evidence", "evidence-alarm", "trial"};
  require(selectors.contains(o.selector), "selector");
  const std::set<std::string> guards = {"none", "clip", "skip", "replay"};
  require(guards.contains(o.guard), "guard");
  check_integer(o.max_trials, 0, 100, "max_trials");
  check_real(o.error_factor, o.error_factor >= 1, "error_factor");
  check_real(o.error_floor, o.error_floor >= 0, "error_floor");
  check_real(o.error_ceiling, o.error_ceiling == 0 || o.error_ceiling >= 1, "error_ceiling");
  check_real(o.error_beta, o.error_beta >= 0 && o.error_beta < 1, "error_beta");
  check_integer(o.error_warmup, 1, kLargestInteger, "error_warmup");
  check_real(o.coarse_error, o.coarse_error >= 0, "coarse_error");
  check_real(o.coarse_factor, o.coarse_factor >= 1, "coarse_factor");
  check_real(o.coarse_fill, o.coarse_fill >= 0, "coarse_fill");
}

// "It has a unique non-empty name, a cost (integer >= 1 ...)"
void Controller::check_units() const {
  std::set<std::string> names;
  for (const Unit& unit : units_) {
    require(!unit.name.empty(), "name: empty");
    require(names.insert(unit.name).second, "name: twice");
    require(unit.cost >= 1, "cost");
  }
}

void Controller::set_limits() {
  // Forced units "count in neither U, cost nor budget".
  std::int64_t count = 0;
  std::int64_t total = 0;
  for (const Unit& unit : units_) {
    if (!unit.forced) {
      count += 1;
      // "The total cost is at most 2^53"
      require(unit.cost <= kLargestTotalCost - total, "cost: total");
      total += unit.cost;
    }
  }
  // "a fraction f of U units is max(1, floor(f * U)) in double arithmetic; 0 denies all."
  if (options_.max_o > 0 && options_.max_o < 1) {
    max_units_ =
        std::max(std::int64_t{1}, static_cast<std::int64_t>(std::floor(options_.max_o * static_cast<double>(count))));
  } else {
    max_units_ = static_cast<std::int64_t>(options_.max_o);
  }
  // "the cost limit is the total where max_cost = 1, else floor(max_cost * total) in double"
  if (options_.max_cost == 1) {
    cost_limit_ = total;
  } else {
    cost_limit_ = static_cast<std::int64_t>(std::floor(options_.max_cost * static_cast<double>(total)));
  }
  // "it is an error if there are units and every unit's cost exceeds it."
  std::int64_t fitting = 0;
  for (const Unit& unit : units_) {
    if (!unit.forced && unit.cost <= cost_limit_) {
      fitting += 1;
    }
  }
  require(count == 0 || fitting > 0, "max_cost");
  // "M = floor(s * 100 * T) in double, from left to right. It starts full."
  total_ = total;
  bucket_size_ = static_cast<std::int64_t>(std::floor(options_.max_high_share * 100 * static_cast<double>(total)));
  bucket_ = bucket_size_;
}

// "1. Before point 2 of Decision the bucket becomes b + floor((j + 1) * M / 100) - floor(j * M / 100) - r ...; then at
// most M, and at least 0". For the small costs of tests.
void Controller::fill_bucket() {
  if (!has_cap()) {
    return;
  }
  const std::int64_t j = decisions_ % 100;
  std::int64_t r = had_trial_ ? total_ : 0;
  for (const std::size_t unit : units_in_recovery()) {
    r += units_[unit].cost;
  }
  had_trial_ = false;
  bucket_ = bucket_ + (j + 1) * bucket_size_ / 100 - j * bucket_size_ / 100 - r;
  bucket_ = std::max<std::int64_t>(std::min(bucket_, bucket_size_), 0);
}

// "2. Free is the bucket less what is promised", if these units were not in recovery.
std::int64_t Controller::free_but_for(std::int64_t reruns, const std::vector<std::size_t>& without) const {
  std::int64_t promised = reruns * total_;
  for (const std::size_t unit : units_in_recovery()) {
    if (std::find(without.begin(), without.end(), unit) == without.end()) {
      const std::int64_t steps = is_standing(recoveries_[unit]) ? 1 : recoveries_[unit].left;
      promised += units_[unit].cost * steps;
    }
  }
  return bucket_ - promised;
}

bool Controller::cap_has_room(std::size_t unit, std::int64_t steps, const std::vector<std::size_t>& without) const {
  return !has_cap() || free_but_for(to_come_, without) >= units_[unit].cost * steps;
}

// "5. A unit fits into standing recovery only if free is also at least its cost, and all units in standing recovery
// then cost at most W = floor(3 * M / 400)"
bool Controller::may_stand(std::size_t unit, const std::vector<std::size_t>& without) const {
  std::int64_t standing = units_[unit].cost;
  for (const std::size_t other : units_in_recovery()) {
    if (is_standing(recoveries_[other]) && std::find(without.begin(), without.end(), other) == without.end()) {
      standing += units_[other].cost;
    }
  }
  return !has_cap() || (cap_has_room(unit, 1, without) && standing <= 3 * bucket_size_ / 400);
}

// "if free is at least T; with a gate, T times one more than the reruns that n counts as to come. Here free is as the
// last decision left it, without the reruns to come."
bool Controller::pays_for_rerun(std::int64_t to_come) const {
  return !has_cap() || free_but_for(0, {}) >= total_ * (to_come + 1);
}

void Controller::replay() {
  if (!has_cap()) {
    return;
  }
  for (const std::size_t unit : units_in_recovery()) {
    bucket_ -= units_[unit].cost;
  }
  bucket_ = std::max<std::int64_t>(bucket_, 0);
}

// "fall_limit = max(fall_tau, noise_factor * fall_noise)"
double Controller::fall_limit_of(const History& history) const {
  return std::max(options_.fall_tau, options_.noise_factor * fall_noise_of(history));
}

// "1. Ratios."
Signals Controller::pass_1_ratio(std::size_t unit, const std::optional<double>& norm) {
  const History& history = histories_[unit];
  Signals signals;
  // "No sample: nothing changes, the unit is not at risk."
  if (!norm) {
    return signals;
  }
  // "NaN of either sign or infinity: ratio = severity = +infinity, the unit is at risk (also before warm-up)"
  if (!std::isfinite(*norm)) {
    signals.sampled = true;
    signals.at_risk = true;
    signals.kind = RiskKind::non_finite;
    signals.ratio = kInfinity;
    signals.severity = kInfinity;
    return signals;
  }
  if (*norm == 0) {
    // "with k < warmup_samples or fall_tau = 0: as no sample; after a futile recovery that ended on a 0, until a finite
    // norm that is not 0: as no sample; otherwise the gradient is gone: severity = 1e30 / fall_limit"
    if (is_warm(history) && options_.fall_tau > 0 && !recoveries_[unit].zeros_ignored) {
      signals.sampled = true;
      signals.at_risk = true;
      signals.kind = RiskKind::fall;
      signals.severity = kLargest / fall_limit_of(history);
    }
    return signals;
  }
  recoveries_[unit].zeros_ignored = false;
  signals.sampled = true;
  // "k = 0: ratio = 1." "GNMR ratio = min(n / mean, 1e30) (1 where mean = 0)."
  if (history.k == 0 || mean_of(history) == 0) {
    signals.ratio = 1.0;
  } else {
    signals.ratio = std::min(*norm / mean_of(history), kLargest);
  }
  return signals;
}

// "centre = (sum of floor(min(ratio, 2) * 2^20)) / (2^20 * count) over the units with k > 0 (before this step) whose
// norm in this step is finite and not 0, sum and product in 64-bit integers"; "1 where there are none."
double Controller::centre_of(const std::vector<std::optional<double>>& norms,
                             const std::vector<Signals>& signals) const {
  std::int64_t sum = 0;
  std::int64_t count = 0;
  for (std::size_t unit = 0; unit < units_.size(); ++unit) {
    if (histories_[unit].k > 0 && is_number(norms[unit])) {
      sum += static_cast<std::int64_t>(
          std::floor(std::min(*signals[unit].ratio, 2.0) * static_cast<double>(kCentreScale)));
      count += 1;
    }
  }
  if (count == 0) {
    return 1;
  }
  return static_cast<double>(sum) / static_cast<double>(kCentreScale * count);
}

// "2. Changes, for the units whose norm is finite and not 0."
void Controller::pass_2_changes(std::size_t unit, double n, double centre, Signals& signals) {
  History& history = histories_[unit];
  const double ratio = *signals.ratio;
  // "k = 0: inverse = 1, no risk, s = n."
  double inverse = 1;
  double s = n;
  if (history.k > 0) {
    const double mean = mean_of(history);
    // "inverse = min(centre / ratio, 1e30) (1e30 where ratio = 0)"
    inverse = ratio == 0 ? kLargest : std::min(centre / ratio, kLargest);
    judge_change(history, inverse, signals);
    // "s = min(max(n, mean / mean_cap), mean_cap * mean) where warm, mean_cap > 0 and mean > 0, else n."
    if (is_warm(history) && options_.mean_cap > 0 && mean > 0) {
      s = std::min(std::max(n, mean / options_.mean_cap), options_.mean_cap * mean);
    }
  }
  // "For both kinds then: m = beta * m + (1 - beta) * s, p = beta * p"
  history.m = options_.beta * history.m + (1 - options_.beta) * s;
  history.p = options_.beta * history.p;
  // "p or w below 2^-60 becomes 0"
  if (history.p < kSmallestWeight) {
    history.p = 0;
  }
  if (history.w < kSmallestWeight) {
    history.w = 0;
  }
  history.k = history.k + 1;
  // "ratio and inverse join the kept ones, the oldest leaving when there are more than window, except that with
  // mean_cap > 0 those of a unit at risk do not join."
  if (!(options_.mean_cap > 0 && signals.at_risk)) {
    history.ratios.push_back(ratio);
    history.inverses.push_back(inverse);
    if (history.ratios.size() > static_cast<std::size_t>(options_.window)) {
      history.ratios.pop_front();
      history.inverses.pop_front();
    }
  }
}

// The list under "k > 0", but for s.
void Controller::judge_change(History& history, double inverse, Signals& signals) const {
  const Options& o = options_;
  const double noise = noise_of(history);
  const double r = history.ratios.front();
  const double i = history.inverses.front();
  const double ratio = *signals.ratio;
  // "Delta-GNMR"
  const double delta = ratio - std::max(r, o.baseline);
  const double limit = std::max(o.tau, 1 + o.noise_factor * noise);
  const double delta_limit = std::max(o.delta_tau, o.noise_factor * noise);
  // "Fall-GNMR"
  const double fall = inverse - std::max(i, o.baseline);
  const double fall_limit = fall_limit_of(history);
  // "severity = max(ratio / limit, delta / delta_limit, fall / fall_limit), the last only where fall_tau > 0."
  double severity = std::max(ratio / limit, delta / delta_limit);
  bool falls = false;
  if (o.fall_tau > 0) {
    falls = fall / fall_limit > ratio / limit && fall / fall_limit > delta / delta_limit;
    severity = std::max(severity, fall / fall_limit);
  }
  signals.delta = delta;
  signals.fall = fall;
  signals.severity = severity;
  // "At risk: warm and severity > 1."
  if (is_warm(history) && severity > 1) {
    signals.at_risk = true;
    // "fall where fall / fall_limit is greater than the other two"; "else rise."
    signals.kind = falls ? RiskKind::fall : RiskKind::rise;
  }
  // "change = |ratio - r|, fall_change = |inverse - i| (0 where fall_tau = 0)."
  double change = std::abs(ratio - r);
  double fall_change = o.fall_tau == 0 ? 0 : std::abs(inverse - i);
  bool enter = true;
  if (!is_warm(history)) {
    // "Not warm: they enter as at most delta_tau and fall_tau."
    change = std::min(change, o.delta_tau);
    fall_change = std::min(fall_change, o.fall_tau);
  } else {
    // "Warm: they enter only if severity <= 1, change <= delta_limit and fall_change <= fall_limit (the last only where
    // fall_tau > 0)."
    enter = severity <= 1 && change <= delta_limit && (o.fall_tau == 0 || fall_change <= fall_limit);
  }
  // "Where they enter: q = noise_beta * q + (1 - noise_beta) * change, f likewise with fall_change,
  // w = noise_beta * w."
  if (enter) {
    history.q = o.noise_beta * history.q + (1 - o.noise_beta) * change;
    history.f = o.noise_beta * history.f + (1 - o.noise_beta) * fall_change;
    history.w = o.noise_beta * history.w;
  }
}

// "1. Common, where common_share < 1"
bool Controller::is_common(const std::vector<std::optional<double>>& norms, const std::vector<Signals>& signals) const {
  if (!(options_.common_share < 1)) {
    return false;
  }
  std::int64_t sampled = 0;
  std::int64_t finite = 0;
  std::int64_t risks = 0;  // among the finite ones
  for (std::size_t unit = 0; unit < units_.size(); ++unit) {
    if (signals[unit].sampled) {
      sampled += 1;
      if (std::isfinite(*norms[unit])) {
        finite += 1;
        if (signals[unit].at_risk) {
          risks += 1;
        }
      }
    }
  }
  // "at least 10 sampled units have a finite norm and more than common_share of these (risks >
  // common_share * finite ...)"
  if (finite >= kCommonUnits && static_cast<double>(risks) > options_.common_share * static_cast<double>(finite)) {
    return true;
  }
  // "or at least 10 units are sampled and none has a finite norm."
  return sampled >= kCommonUnits && finite == 0;
}

// What step 2 and step 4 count in samples, "this one counted".
void Controller::count_samples(const std::vector<Signals>& signals) {
  for (std::size_t unit = 0; unit < units_.size(); ++unit) {
    if (signals[unit].sampled) {
      recoveries_[unit].sampled_since_admission = true;
      recoveries_[unit].samples_since_release += 1;
    }
  }
}

// "2. Each unit's wait ..."
void Controller::release(const std::vector<std::optional<double>>& norms, const std::optional<Review>& review,
                         Decision& decision) {
  // "Each unit's wait, if any, is one step less."
  for (Recovery& recovery : recoveries_) {
    if (recovery.wait > 0) {
      recovery.wait -= 1;
    }
  }
  // "times its steps left, after point 2 of Decision has taken one": of all units, before the first is looked at
  std::vector<std::size_t> in_recovery = units_in_recovery();
  for (const std::size_t unit : in_recovery) {
    if (!is_standing(recoveries_[unit])) {
      recoveries_[unit].left -= 1;
    }
  }
  for (const std::size_t unit : in_recovery) {
    Recovery& recovery = recoveries_[unit];
    recovery.steps_in_recovery += 1;  // "this one included"
    // "In point 2 of Decision a review ends the standing recoveries of units that are neither coarse nor filling. All
    // others go on, with the kind and the key of this review. They wait for no sample, and no other decision ends them
    // there."
    if (is_standing(recovery)) {
      if (review && !review->at(unit)) {
        end_standing(unit, decision);
      } else if (review) {
        recovery.admitted_for = review->at(unit)->kind;
        recovery.key = review->at(unit)->key;
      }
      continue;
    }
    // "Each unit in recovery has one step less left ... But it keeps its last step while both hold: it has not been
    // sampled since it was admitted ..., and it has been in recovery for less than max(lock_steps, max_lock_steps)
    // steps"
    // "In point 2 of Decision a unit keeps its last step only if free is at least its cost, which is then promised."
    const bool keeps_its_last = recovery.left == 0 && !recovery.sampled_since_admission &&
                                recovery.steps_in_recovery < std::max(options_.lock_steps, options_.max_lock_steps) &&
                                cap_has_room(unit, 1, {});
    if (keeps_its_last) {
      recovery.left = 1;
    }
    // "with none left it is released"
    if (recovery.left > 0) {
      continue;
    }
    recovery.in_recovery = false;
    recovery.released_before = true;
    recovery.samples_since_release = 0;  // "the step of release not counted"
    decision.released.push_back(unit);
    // "A unit whose risk in the step of its release is of the kind for which it was admitted ...: where cooldown_steps
    // > 0 and the step is not common it is futile (and released), and its wait is cooldown_steps."
    const Signals& signals = decision.signals[unit];
    const bool not_helped = signals.at_risk && signals.kind == recovery.admitted_for;
    if (not_helped && options_.cooldown_steps > 0 && !decision.common) {
      recovery.wait = options_.cooldown_steps;
      if (*norms[unit] == 0) {
        recovery.zeros_ignored = true;
      }
      decision.futile.push_back(unit);
    }
  }
}

// "3. Candidates ..."
std::vector<Candidate> Controller::candidates_by_norms(const Decision& decision, std::int64_t doubt) const {
  // "Candidates, unless the step is common: units at risk, not in recovery, not waiting." Forced units "are no
  // candidates".
  std::vector<Candidate> candidates;
  for (std::size_t unit = 0; unit < units_.size(); ++unit) {
    const Recovery& recovery = recoveries_[unit];
    const Signals& signals = decision.signals[unit];
    // "The risk of a unit by its norms counts where d = 1, or its severity is above d"
    const bool counts = signals.at_risk && (doubt == 1 || signals.severity > static_cast<double>(doubt));
    if (!decision.common && !units_[unit].forced && counts && !recovery.in_recovery && recovery.wait == 0) {
      candidates.push_back({unit, signals.severity, signals.kind});
    }
  }
  return candidates;
}

// "4. Each in that order ..."
void Controller::admit(std::vector<Candidate> candidates, Decision& decision) {
  // "Order: severity, highest first; ties: highest index first"
  std::sort(candidates.begin(), candidates.end(), [](const Candidate& left, const Candidate& right) {
    if (left.severity != right.severity) {
      return left.severity > right.severity;
    }
    return left.unit > right.unit;
  });
  // "Each in that order is admitted if ...; otherwise it is denied and the next is tried"
  for (const Candidate& candidate : candidates) {
    if (!fits(candidate.unit, units_in_recovery()) || !cap_has_room(candidate.unit, options_.lock_steps, {})) {
      make_room(candidate.unit, /*coarse_ones_too=*/true, decision, decision.displaced);
    }
    // "4. In point 4 a unit fits only if free is also at least its cost times lock_steps."
    if (fits(candidate.unit, units_in_recovery()) && cap_has_room(candidate.unit, options_.lock_steps, {})) {
      start_recovery(candidate.unit, candidate.kind);
      decision.admitted.push_back(candidate.unit);
    } else {
      decision.denied.push_back(candidate.unit);
    }
  }
}

// "2. In point 4 a candidate that does not fit ends standing recoveries, filling ones first, of a kind the lowest key
// first (ties: highest index), until it fits. If it would not fit without any of them, none ends." Here an acute
// candidate ends coarse ones too, and the cap asks for its whole lock, of a coarse unit for what may stand.
void Controller::make_room(std::size_t candidate, bool coarse_ones_too, Decision& decision,
                           std::vector<std::size_t>& ended) {
  const auto is_paid = [&](const std::vector<std::size_t>& without) {
    return coarse_ones_too ? cap_has_room(candidate, options_.lock_steps, without) : may_stand(candidate, without);
  };
  const std::vector<std::size_t> kept = units_in_recovery(/*with_coarse=*/!coarse_ones_too, /*with_filling=*/false);
  std::vector<std::size_t> may_end = units_in_recovery();
  std::erase_if(may_end, [&](std::size_t unit) { return std::find(kept.begin(), kept.end(), unit) != kept.end(); });
  if (!fits(candidate, kept) || !is_paid(may_end)) {
    return;
  }
  while (!fits(candidate, units_in_recovery()) || !is_paid({})) {
    const std::optional<std::size_t> filling = lowest_key(RiskKind::fill);
    const std::size_t lowest = filling ? *filling : lowest_key(RiskKind::coarse).value();
    end_standing(lowest, decision);
    ended.push_back(lowest);
  }
}

// "3. After point 4 a review admits units that are coarse, not forced and not in recovery (waiting or not), highest key
// first (ties: lowest index), each if it fits as in point 4." "4. Then it admits units that fill, likewise; they
// replace filling recoveries only, and end no others."
void Controller::admit_standing(const Review& review, RiskKind kind, Decision& decision) {
  std::vector<std::size_t> order;
  for (std::size_t unit = 0; unit < units_.size(); ++unit) {
    const bool claims = review[unit] && review[unit]->kind == kind;
    if (claims && !units_[unit].forced && !recoveries_[unit].in_recovery) {
      order.push_back(unit);
    }
  }
  std::sort(order.begin(), order.end(), [&review](std::size_t left, std::size_t right) {
    if (review[left]->key != review[right]->key) {
      return review[left]->key > review[right]->key;
    }
    return left < right;
  });
  for (const std::size_t unit : order) {
    // "For one that does not, filling recoveries end as in point 2."
    const auto has_room = [&] { return fits(unit, units_in_recovery()) && may_stand(unit, {}); };
    if (kind == RiskKind::coarse && !has_room()) {
      make_room(unit, /*coarse_ones_too=*/false, decision, decision.replaced);
    }
    // "One that would not fit without any of these replaces the coarse recovery with the lowest key (ties: highest
    // index) if ..."
    if (!has_room()) {
      const std::optional<std::size_t> lowest = lowest_key(kind);
      if (!lowest || !replaces(unit, review[unit]->key, *lowest)) {
        continue;
      }
      end_standing(*lowest, decision);
      decision.replaced.push_back(*lowest);
    }
    start_standing(unit, *review[unit]);
  }
}

// "if its own key is above 1.25 times that one, if that one has lasted at least 100 decisions (those after its
// admission, this one included), and if it then fits." "filling recoveries only, however short these have lasted"
bool Controller::replaces(std::size_t unit, double key, std::size_t other) const {
  std::vector<std::size_t> without_other = units_in_recovery();
  std::erase(without_other, other);
  const bool lasted = recoveries_[other].steps_in_recovery >= 100 || is_for(recoveries_[other], RiskKind::fill);
  return key > 1.25 * recoveries_[other].key && lasted && fits(unit, without_other) && may_stand(unit, {other});
}

// "lowest key first (ties: highest index)"
std::optional<std::size_t> Controller::lowest_key(RiskKind kind) const {
  std::optional<std::size_t> lowest;
  for (std::size_t unit = 0; unit < units_.size(); ++unit) {
    if (is_for(recoveries_[unit], kind) && (!lowest || recoveries_[unit].key <= recoveries_[*lowest].key)) {
      lowest = unit;
    }
  }
  return lowest;
}

// "full is one with max_o above 0 of which acute recoveries with more than one step left have all max_o places"
bool Controller::is_full(std::int64_t steps) const {
  std::int64_t taken = 0;
  for (const Recovery& recovery : recoveries_) {
    if (recovery.in_recovery && !is_standing(recovery) && recovery.left > steps) {
      taken = taken + 1;
    }
  }
  return max_units_ > 0 && taken >= max_units_;
}

// "A unit whose standing recovery ends is released; it is never futile, and gets no wait. For relapses a standing
// recovery counts neither as a release nor as a lock."
void Controller::end_standing(std::size_t unit, Decision& decision) {
  recoveries_[unit].in_recovery = false;
  decision.released.push_back(unit);
}

std::vector<std::size_t> Controller::units_in_recovery(bool with_coarse, bool with_filling) const {
  std::vector<std::size_t> units;
  for (std::size_t unit = 0; unit < units_.size(); ++unit) {
    const Recovery& recovery = recoveries_[unit];
    const bool left_out =
        (!with_coarse && is_for(recovery, RiskKind::coarse)) || (!with_filling && is_for(recovery, RiskKind::fill));
    if (recovery.in_recovery && !left_out) {
      units.push_back(unit);
    }
  }
  return units;
}

// "5. The units now in recovery are those of step t+1." "the decision lists all units in standing recovery after it."
void Controller::list_recoveries(Decision& decision) const {
  decision.recovered = units_in_recovery();
  for (const std::size_t unit : decision.recovered) {
    if (is_standing(recoveries_[unit])) {
      decision.standing.push_back(unit);
    }
    if (is_for(recoveries_[unit], RiskKind::fill)) {
      decision.filling.push_back(unit);
    }
  }
  for (std::vector<std::size_t>* list : {&decision.admitted, &decision.denied, &decision.released}) {
    std::sort(list->begin(), list->end());
  }
}

// "if afterwards at most max_o units are in recovery, their cost is within the limit, and at most group_max of its
// group are"
bool Controller::fits(std::size_t candidate, const std::vector<std::size_t>& recovered) const {
  std::int64_t count = 1;
  std::int64_t cost = units_[candidate].cost;
  std::int64_t in_group = 1;
  for (const std::size_t unit : recovered) {
    count += 1;
    cost += units_[unit].cost;
    if (units_[unit].group == units_[candidate].group) {
      in_group += 1;
    }
  }
  // "A unit without a group is not limited by group_max."
  const bool group_limited = options_.group_max > 0 && !units_[candidate].group.empty();
  return count <= max_units_ && cost <= cost_limit_ && (!group_limited || in_group <= options_.group_max);
}

void Controller::start_recovery(std::size_t unit, RiskKind kind) {
  Recovery& recovery = recoveries_[unit];
  // "The lock is lock_steps. A unit that was released before, and since then was sampled in at most lock_steps steps
  // ..., has relapsed: its lock is max(lock_steps, min(2 * L, max_lock_steps)), L being the lock that it was last
  // given."
  std::int64_t lock = options_.lock_steps;
  if (recovery.released_before && recovery.samples_since_release <= options_.lock_steps) {
    lock = std::max(options_.lock_steps, std::min(2 * recovery.last_lock, options_.max_lock_steps));
  }
  // "Its lock is not longer than free divided by its cost, rounded down, but at least lock_steps."
  if (has_cap()) {
    lock = std::max(options_.lock_steps, std::min(lock, free_but_for(to_come_, {}) / units_[unit].cost));
  }
  recovery.in_recovery = true;
  recovery.admitted_for = kind;
  recovery.left = lock;
  recovery.steps_in_recovery = 0;
  recovery.sampled_since_admission = false;  // "the step of admission not counted"
  recovery.last_lock = lock;
}

// "A standing recovery ... has no lock"
void Controller::start_standing(std::size_t unit, const Claim& claim) {
  Recovery& recovery = recoveries_[unit];
  recovery.in_recovery = true;
  recovery.admitted_for = claim.kind;
  recovery.key = claim.key;
  recovery.left = 0;
  recovery.steps_in_recovery = 0;  // "those after its admission"
}

}  // namespace gnmr::naive

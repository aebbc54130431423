// SPDX-License-Identifier: Apache-2.0
// The naive second implementation of "Recovery that hits the right unit": see naive_judge.h. Quoted comments are
// sentences of docs/algorithm.md.
#include "naive_judge.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <utility>

namespace gnmr::naive {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

void require(bool holds, const std::string& what) {
  if (!holds) {
    throw std::invalid_argument(what);
  }
}

}  // namespace

Judge::Judge(std::vector<Unit> units, Options options, std::vector<double> expected, bool can_rerun)
    : controller_(units, options),
      options_(options),
      x_(std::move(expected)),
      selector_(options.selector),
      levels_(std::move(units), options, x_.size()) {
  // "the same number C of sites, 1 to 16"
  require(!x_.empty() && x_.size() <= 16, "places");
  for (const double x : x_) {
    require(std::isfinite(x) && x >= 0, "expected error");
  }
  // "`trial` and `replay` are errors where the backend cannot run a step again."
  require(can_rerun || (options_.selector != "trial" && options_.guard != "replay"), "can_rerun");
  // "`auto`: `trial` where the backend can run a step again, else `norms`"
  if (selector_ == "auto") {
    selector_ = can_rerun ? "trial" : "norms";
  }
  places_.assign(controller_.size(), std::vector<Place>(x_.size()));
}

std::int64_t Judge::reruns() const { return std::count(last_decisions_.begin(), last_decisions_.end(), true); }

// "median = of the finite errors of that site over all units in ascending order the one at index
// floor((count - 1) / 2), where there are at least 5; otherwise none."
std::optional<double> Judge::median(const AllJudged& judged, std::size_t place) const {
  std::vector<double> finite;
  for (const std::vector<Judged>& unit : judged) {
    if (unit[place].error && std::isfinite(*unit[place].error)) {
      finite.push_back(*unit[place].error);
    }
  }
  if (finite.size() < 5) {
    return std::nullopt;
  }
  std::sort(finite.begin(), finite.end());
  return finite[(finite.size() - 1) / 2];
}

double Judge::limit(const Place& state, std::optional<double> median, double x, bool of_trial) const {
  // "reference = m / (1 - p) where k >= error_warmup; else, for the errors of a trial only, the median; else none."
  std::optional<double> reference;
  if (state.k >= options_.error_warmup) {
    reference = state.m / (1 - state.p);
  } else if (of_trial && median) {
    reference = *median;
  }
  // "limit = error_factor * reference, infinity without a reference"
  double limit = kInfinity;
  if (reference) {
    limit = options_.error_factor * *reference;
  }
  // "where x > 0 and error_ceiling > 0: limit = min(limit, error_ceiling * x)"
  if (x > 0 && options_.error_ceiling > 0) {
    limit = std::min(limit, options_.error_ceiling * x);
  }
  // "then limit = max(limit, error_floor, 1e-6)"
  limit = std::max(limit, options_.error_floor);
  return std::max(limit, 1e-6);
}

Judge::AllJudged Judge::judge(const Errors& errors, bool of_trial) const {
  const std::size_t c = x_.size();
  require(errors.empty() || errors.size() == controller_.size() * c, "errors: units times places");
  AllJudged judged(controller_.size(), std::vector<Judged>(c));
  for (std::size_t i = 0; i < errors.size(); ++i) {
    // "NaN means not measured. A negative error is an error of the caller, and no state changes."
    require(!(errors[i] < 0), "negative error");
    if (!std::isnan(errors[i])) {
      judged[i / c][i % c].error = errors[i];
    }
  }
  for (std::size_t place = 0; place < c; ++place) {
    const std::optional<double> middle = median(judged, place);
    for (std::size_t unit = 0; unit < controller_.size(); ++unit) {
      Judged& one = judged[unit][place];
      if (one.error) {
        // "excess = e / limit (infinity where e is infinite)."
        const double most = limit(places_[unit][place], middle, x_[place], of_trial);
        one.excess = std::isinf(*one.error) ? kInfinity : *one.error / most;
      }
    }
  }
  return judged;
}

// "A unit's excess is the largest of its sites', the first of equals"
std::size_t Judge::worst_place(const std::vector<Judged>& places) {
  std::size_t worst = 0;
  for (std::size_t place = 0; place < places.size(); ++place) {
    if (places[place].excess > places[worst].excess) {
      worst = place;
    }
  }
  return worst;
}

// "Reported are the outliers that are not in recovery"
std::vector<std::size_t> Judge::told(const AllJudged& judged) const {
  std::vector<std::size_t> units;
  for (std::size_t unit = 0; unit < judged.size(); ++unit) {
    const bool stands_out = judged[unit][worst_place(judged[unit])].excess > 1;
    if (stands_out && !controller_.in_recovery(unit)) {
      units.push_back(unit);
    }
  }
  return units;
}

// "A unit is free if it is not forced, not in recovery, and its wait, if any, is 1 (point 2 of Decision is about to end
// it)."
bool Judge::is_free(std::size_t unit) const {
  return !controller_.unit(unit).forced && !controller_.in_recovery(unit) && controller_.wait(unit) <= 1;
}

// "its free units", "a unit's excess being its severity"; "admitted for the kind error"
std::vector<Candidate> Judge::free_ones(const std::vector<std::size_t>& units, const AllJudged& judged) const {
  std::vector<Candidate> candidates;
  for (const std::size_t unit : units) {
    if (is_free(unit)) {
      candidates.push_back({unit, judged[unit][worst_place(judged[unit])].excess, RiskKind::error});
    }
  }
  return candidates;
}

// "S is the set of the free ones among them; with the selector trial only of those with an excess above 1.25", and in
// the first decisions "S has only units with an infinite error".
std::vector<Candidate> Judge::s_of(const std::vector<std::size_t>& told, const AllJudged& judged) const {
  std::vector<Candidate> s = free_ones(told, judged);
  if (selector_ == "trial") {
    std::erase_if(s, [](const Candidate& one) { return !(one.severity > 1.25); });
  }
  if (is_one_of_the_first(decisions_)) {
    const auto is_infinite = [](const Judged& one) { return one.error && std::isinf(*one.error); };
    std::erase_if(s, [&](const Candidate& one) {
      return std::none_of(judged[one.unit].begin(), judged[one.unit].end(), is_infinite);
    });
  }
  return s;
}

// "The patrol is complete if every free unit that is sampled has at least one measured error."
bool Judge::is_complete(const AllJudged& judged, const Decision& observed) const {
  for (std::size_t unit = 0; unit < judged.size(); ++unit) {
    const bool measured =
        std::any_of(judged[unit].begin(), judged[unit].end(), [](const Judged& one) { return one.error.has_value(); });
    if (is_free(unit) && observed.signals[unit].sampled && !measured) {
      return false;
    }
  }
  return true;
}

bool Judge::some_free_unit_at_risk(const Decision& observed) const {
  for (std::size_t unit = 0; unit < observed.signals.size(); ++unit) {
    if (observed.signals[unit].at_risk && is_free(unit)) {
      return true;
    }
  }
  return false;
}

// "with the selector trial, in the decisions numbered below 1.5 * warmup_samples (from 0, over all resumed runs)"
bool Judge::is_one_of_the_first(std::int64_t decision) const {
  return selector_ == "trial" && static_cast<double>(decision) < 1.5 * static_cast<double>(options_.warmup_samples);
}

// "d counts as 8 whatever it is"
std::int64_t Judge::doubt_in(std::int64_t decision) const { return is_one_of_the_first(decision) ? 8 : doubt_; }

// "The risk of a unit by its norms counts where d = 1, or its severity is above d"
bool Judge::counts(const Signals& signals) const {
  const std::int64_t d = doubt_in(decisions_);
  return signals.at_risk && (d == 1 || signals.severity > static_cast<double>(d));
}

bool Judge::some_risk_of_a_free_unit_counts(const Decision& observed) const {
  for (std::size_t unit = 0; unit < observed.signals.size(); ++unit) {
    if (is_free(unit) && counts(observed.signals[unit])) {
      return true;
    }
  }
  return false;
}

// "how many decisions ago the latest of them was (1: the last decision had it)"; none: none of them had one.
std::optional<std::int64_t> Judge::decisions_since_rerun() const {
  const auto found = std::find(last_decisions_.rbegin(), last_decisions_.rend(), true);
  if (found == last_decisions_.rend()) {
    return std::nullopt;
  }
  return found - last_decisions_.rbegin() + 1;
}

// "n < max_trials; n = 0, or max_trials = 100, or n * (a + 1) <= max_trials * a."
bool Judge::within_the_limit(std::int64_t n) const {
  const std::optional<std::int64_t> a = decisions_since_rerun();
  // "a is about these alone; if there are none, n < max_trials is enough"
  const bool waited_enough = n == 0 || options_.max_trials == 100 || !a || n * (*a + 1) <= options_.max_trials * *a;
  return n < options_.max_trials && waited_enough;
}

bool Judge::some_non_finite_risk(const Decision& observed) {
  return std::any_of(observed.signals.begin(), observed.signals.end(),
                     [](const Signals& signals) { return signals.kind == RiskKind::non_finite; });
}

Hearing Judge::hear(const Norms& norms, const Errors& patrol, bool may_rerun) {
  require(!heard_, "a step is being heard");
  // "1. Signals and common are as above, with the observation pending. The patrol's errors are judged."
  Heard heard{norms, controller_, {}, judge(patrol, /*of_trial=*/false), {}, "", {}, "proceed", {}};
  heard.observed = heard.pending.observe(norms);
  Hearing& hearing = heard.hearing;
  hearing.told = told(heard.judged);
  // "S is the set of the free ones among them."
  std::vector<Candidate> s = s_of(hearing.told, heard.judged);
  // "2. The patrol is complete if ..."
  bool complete = is_complete(heard.judged, heard.observed);
  // "With the selector `norms` S and completeness do not count here"
  const bool by_norms = selector_ == "norms";
  // "3. The step is alarmed if S is not empty; or some unit, free or not, has a non-finite risk; or, where the patrol
  // is not complete, the risk of some free unit counts, common or not."
  hearing.alarmed = (!by_norms && !s.empty()) || some_non_finite_risk(heard.observed) ||
                    ((by_norms || !complete) && some_risk_of_a_free_unit_counts(heard.observed));
  // "Where it is not alarmed and yet such a risk counts, the alarm is dismissed."
  hearing.dismissed = !hearing.alarmed && some_risk_of_a_free_unit_counts(heard.observed);
  // "4. Whether a rerun may be, n being how many of the last 99 decisions had one ... the caller does not forbid it"
  const bool rerun_may_be = within_the_limit(reruns()) && may_rerun && controller_.pays_for_rerun(0);
  choose_decider(heard, s, rerun_may_be);
  apply_guard(heard, rerun_may_be);
  heard_ = heard;
  return hearing;
}

// "A trial pays where S is empty, some unit has a non-finite risk, the guard is skip, or the budget is not full"
bool Judge::pays(const std::vector<Candidate>& s, const Decision& observed) const {
  return options_.guard == "skip" || s.empty() || some_non_finite_risk(observed) || !controller_.is_full();
}

// "5. Who decides."
void Judge::choose_decider(Heard& heard, const std::vector<Candidate>& s, bool rerun_may_be) const {
  if (selector_ == "norms") {
    heard.decider = "norms";
  }
  if (selector_ == "evidence") {
    heard.decider = "S";
  }
  // "as evidence, but no candidates where no unit is at risk by its norms"
  if (selector_ == "evidence-alarm") {
    const auto& signals = heard.observed.signals;
    const bool risk = std::any_of(signals.begin(), signals.end(), [](const Signals& one) { return one.at_risk; });
    heard.decider = risk ? "S" : "nobody";
  }
  // "an alarmed step has a trial if a rerun may be, and pays. If not it is spent, and decided as with evidence where S
  // is not empty, as with norms where it is. A step that is not alarmed, dismissed ones included, has no candidates."
  if (selector_ == "trial") {
    heard.decider = "nobody";
    if (heard.hearing.alarmed) {
      heard.decider = s.empty() ? "norms" : "S";
      if (rerun_may_be && pays(s, heard.observed)) {
        heard.hearing.action = "trial";
      } else {
        heard.hearing.spent = true;
      }
    }
  }
  // "6. ... where S decides, those of S; where the norms decide, the free units whose risk counts, or none if the step
  // is common."
  if (heard.decider == "S") {
    heard.asking = s;
  }
  if (heard.decider == "norms" && !heard.observed.common) {
    for (std::size_t unit = 0; unit < controller_.size(); ++unit) {
      const Signals& signals = heard.observed.signals[unit];
      if (counts(signals) && is_free(unit)) {
        heard.asking.push_back({unit, signals.severity, signals.kind});
      }
    }
  }
}

// "6. Guard, where the step has no trial." What it would do without the trial is kept for a rerun that fails.
void Judge::apply_guard(Heard& heard, bool rerun_may_be) const {
  // "Where there are none the guard does nothing."
  if (heard.asking.empty()) {
    return;
  }
  if (options_.guard == "clip") {
    heard.clip = clip(heard);
  }
  if (options_.guard == "skip") {
    heard.action_without_trial = "hold";
  }
  // "With the selector trial it is always as none"
  if (options_.guard == "replay" && selector_ != "trial") {
    if (rerun_may_be) {
      heard.action_without_trial = "replay";
    } else {
      heard.hearing.spent = true;
    }
  }
  if (heard.hearing.action != "trial") {
    heard.hearing.action = heard.action_without_trial;
    heard.hearing.clip = heard.clip;
  }
}

// "clip: the gradients of these units are scaled, of no others. Of each that is sampled: by 0 where its norm is not
// finite; by mean / norm where its norm is above its mean and that is above 0 ... (0 where k = 0)."
std::vector<double> Judge::clip(const Heard& heard) const {
  std::vector<double> factors(controller_.size(), 1.0);
  for (const Candidate& candidate : heard.asking) {
    const std::size_t unit = candidate.unit;
    if (!heard.observed.signals[unit].sampled) {
      continue;
    }
    const double norm = *heard.norms[unit];
    const double mean = controller_.k(unit) == 0 ? 0 : controller_.m(unit) / (1 - controller_.p(unit));
    if (!std::isfinite(norm)) {
      factors[unit] = 0;
    } else if (norm > mean && mean > 0) {
      factors[unit] = mean / norm;
    }
  }
  return factors;
}

Ruling Judge::decide() {
  require(heard_.has_value(), "no step is being heard");
  Heard heard = *heard_;
  heard_.reset();
  Ruling ruling;
  ruling.decision = heard.observed;
  tell(heard.judged, ruling);
  // "If candidates from S decide, the step is not common; else it is where the norms say so."
  if (heard.decider == "S" && !heard.asking.empty()) {
    ruling.decision.common = false;
  }
  std::optional<std::vector<Candidate>> candidates;
  if (heard.decider == "S") {
    candidates = heard.asking;
  }
  if (heard.decider == "nobody") {
    candidates = std::vector<Candidate>{};
  }
  controller_ = heard.pending;
  if (heard.hearing.action == "trial") {
    controller_.has_trial();  // "a trial, failed or not"
  }
  controller_.expect_reruns(to_come_ + (heard.action_without_trial == "replay" ? 1 : 0));
  controller_.decide(heard.norms, ruling.decision, candidates, review(ruling.decision), doubt_in(decisions_));
  ruling.clip = heard.clip;
  ruling.action = heard.action_without_trial;
  // "Where a unit was admitted that was not released in the same decision, the step is run once more"
  if (ruling.action == "replay") {
    const std::vector<std::size_t>& released = ruling.decision.released;
    std::int64_t newly_admitted = 0;
    for (const std::size_t unit : ruling.decision.admitted) {
      newly_admitted += std::count(released.begin(), released.end(), unit) == 0 ? 1 : 0;
    }
    if (newly_admitted == 0) {
      ruling.action = "proceed";
    }
  }
  if (ruling.action == "replay") {
    controller_.replay();
  }
  // A trial that failed "has had its rerun all the same".
  end_step(heard.judged, ruling.action == "replay" || heard.hearing.action == "trial", "none");
  return ruling;
}

Ruling Judge::conclude(const Norms& norms, const Errors& errors) {
  require(heard_ && heard_->hearing.action == "trial", "no trial");
  // "The observation of the alarmed step is withdrawn, and that of the rerun takes its place"
  const AllJudged judged = judge(errors, /*of_trial=*/true);
  Controller pending = controller_;
  Ruling ruling;
  ruling.decision = pending.observe(norms);
  heard_.reset();
  tell(judged, ruling);
  // "numeric: T is not empty. Its free units are the candidates"
  std::vector<Candidate> candidates;
  if (!ruling.told.empty()) {
    ruling.verdict = "numeric";
    candidates = free_ones(ruling.told, judged);
  } else if (some_free_unit_at_risk(ruling.decision) || some_non_finite_risk(ruling.decision)) {
    ruling.verdict = "common";
  } else {
    ruling.verdict = "unlocated";
  }
  // "The step is common, in point 2 and in the decision, exactly if the verdict is."
  ruling.decision.common = ruling.verdict == "common";
  controller_ = pending;
  controller_.has_trial();
  controller_.expect_reruns(to_come_);
  controller_.decide(norms, ruling.decision, candidates, review(ruling.decision));
  end_step(judged, /*had_rerun=*/true, ruling.verdict);
  return ruling;
}

void Judge::end_step(const AllJudged& judged, bool had_rerun, const std::string& verdict) {
  learn(judged);
  last_decisions_.push_back(had_rerun);
  if (last_decisions_.size() > 99) {
    last_decisions_.pop_front();
  }
  // "With the selector trial, at the end of each decision"
  if (selector_ == "trial" && verdict == "common") {
    doubt_ = std::min<std::int64_t>(2 * doubt_, 8);
    doubt_left_ = 100;
  } else if (selector_ == "trial" && verdict == "numeric") {
    doubt_ = 1;
    doubt_left_ = 0;
  } else if (doubt_left_ > 0) {
    // "it holds for one decision less; with none left d becomes 1"
    doubt_left_ = doubt_left_ - 1;
    if (doubt_left_ == 0) {
      doubt_ = 1;
    }
  }
  decisions_ = decisions_ + 1;
}

// "Decisions are numbered from 0 over all resumed runs; a review is a decision whose number has the remainder 19 when
// divided by 20, unless its step is common or no unit has a sample in it"
std::optional<Review> Judge::review(const Decision& observed) const {
  const auto& signals = observed.signals;
  const bool samples = std::any_of(signals.begin(), signals.end(), [](const Signals& one) { return one.sampled; });
  // "It holds for every selector and lag, where errors are measured (C > 0) and coarse_error > 0"
  if (!(options_.coarse_error > 0) || decisions_ % 20 != 19 || observed.common || !samples) {
    return std::nullopt;
  }
  // "It uses the levels that the decisions before it have left."
  std::vector<RiskKind> standing;
  for (std::size_t unit = 0; unit < controller_.size(); ++unit) {
    standing.push_back(controller_.standing_for(unit));
  }
  return levels_.review(decisions_, standing);
}

// "The plan of a plain step names the units in recovery for which the sum of step number and index of the unit is a
// multiple of 20"
std::vector<std::size_t> Judge::measure(std::int64_t step, const std::vector<bool>& in_recovery) const {
  std::vector<std::size_t> units;
  for (std::size_t unit = 0; unit < in_recovery.size(); ++unit) {
    if (options_.coarse_error > 0 && in_recovery[unit] && (step + static_cast<std::int64_t>(unit)) % 20 == 0) {
      units.push_back(unit);
    }
  }
  return units;
}

std::vector<std::size_t> Judge::measure(std::int64_t step) const {
  std::vector<bool> in_recovery;
  for (std::size_t unit = 0; unit < controller_.size(); ++unit) {
    in_recovery.push_back(controller_.in_recovery(unit));
  }
  return measure(step, in_recovery);
}

// "Learning, once per step, at its decision, from the errors that decided: where e is finite and no outlier"
void Judge::learn(const AllJudged& judged) {
  for (std::size_t unit = 0; unit < judged.size(); ++unit) {
    for (std::size_t place = 0; place < x_.size(); ++place) {
      const Judged& one = judged[unit][place];
      // "At the point where Outliers learns, from the same errors, for each that was measured, outlier or not"
      if (one.error) {
        levels_.take_in(decisions_, unit, place, *one.error);
      }
      if (one.error && std::isfinite(*one.error) && !(one.excess > 1)) {
        Place& state = places_[unit][place];
        state.m = options_.error_beta * state.m + (1 - options_.error_beta) * *one.error;
        state.p = options_.error_beta * state.p;
        if (state.p < 0x1p-60) {
          state.p = 0;
        }
        state.k = state.k + 1;
      }
    }
  }
}

void Judge::tell(const AllJudged& judged, Ruling& ruling) const {
  ruling.told = told(judged);
  for (const std::size_t unit : ruling.told) {
    const std::size_t place = worst_place(judged[unit]);
    ruling.errors.push_back(*judged[unit][place].error);
    ruling.excesses.push_back(judged[unit][place].excess);
    ruling.places.push_back(place);
  }
}

}  // namespace gnmr::naive

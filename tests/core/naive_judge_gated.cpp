// SPDX-License-Identifier: Apache-2.0
// The naive second implementation of "With a gate: lag 1": see naive_judge_gated.h. Quoted comments are sentences of
// docs/algorithm.md.
#include "naive_judge_gated.h"

#include <cfenv>
#include <cmath>
#include <limits>
#include <stdexcept>

namespace gnmr::naive {
namespace {

void require(bool holds, const std::string& what) {
  if (!holds) {
    throw std::invalid_argument(what);
  }
}

}  // namespace

GatedJudge::GatedJudge(std::vector<Unit> units, Options options, std::vector<double> expected, bool can_rerun)
    : Judge(units, options, std::move(expected), can_rerun), beside_(units, options) {
  // "The guard clip, and skip and replay with the selectors evidence and evidence-alarm, are errors with a gate."
  require(options.guard != "clip", "clip");
  const bool by_errors = options.selector == "evidence" || options.selector == "evidence-alarm";
  require(!by_errors || options.guard == "none", "guard by errors");
}

// "n is the sum of the decisions among the last 99 that were reruns; the batches that wait; the other steps that are
// planned and not decided, if by their plans they are reruns, or their gates may close for a trial or a replay."
std::int64_t GatedJudge::to_come(const Plan* but_for) const {
  auto sum = static_cast<std::int64_t>(waiting_.size());
  for (const Plan& plan : undecided_) {
    if (&plan != but_for && plan.counts) {
      sum = sum + 1;
    }
  }
  return sum;
}

bool GatedJudge::rerun_may_be(const Plan* but_for) const {
  return within_the_limit(reruns() + to_come(but_for)) && controller_.pays_for_rerun(to_come(but_for));
}

const Plan& GatedJudge::plan(std::int64_t step) {
  Plan plan;
  plan.step = step;
  // "1. It takes the batch that has waited longest, as what it was held for ...; where none waits, the next fresh one"
  if (waiting_.empty()) {
    plan.batch = next_batch_;
    next_batch_ = next_batch_ + 1;
  } else {
    plan.batch = waiting_.front().batch;
    plan.pass = waiting_.front().pass;
    waiting_.pop_front();
  }
  // "if the report of t-2 called a trial, the step is a trial"
  if (called_) {
    plan.pass = "trial";
  }
  called_ = false;
  // "2. A plain step's gate may close ..."
  if (plan.pass == "plain") {
    const bool may_be = rerun_may_be(nullptr);
    const std::string& guard = options_.guard;
    if (selector_ == "trial" && may_be) {
      plan.gate = "trial";
    } else if (guard == "skip" && (selector_ == "norms" || selector_ == "trial")) {
      plan.gate = "guard";
    } else if (guard == "replay" && selector_ == "norms" && may_be) {
      plan.gate = "guard";
    }
  }
  plan.counts = plan.pass != "plain" || plan.gate == "trial" || (plan.gate == "guard" && options_.guard == "replay");
  // "3. ... which units are free, for which a norm of 0 counts as no sample, and the doubt."
  const std::int64_t decision = decisions_ + static_cast<std::int64_t>(undecided_.size());
  plan.doubt = doubt_in(decision);
  for (std::size_t unit = 0; unit < controller_.size(); ++unit) {
    plan.high.push_back(controller_.in_recovery(unit));
    plan.free.push_back(is_free(unit));
    plan.zero_is_no_sample.push_back(controller_.zeros_ignored(unit));
  }
  // "With the selector trial, where the gate may close and errors are measured, it also has a limit per unit and site"
  if (selector_ == "trial" && plan.gate != "none") {
    plan.limits = limits(plan.gate);
  }
  // "Where the decision of t is one of The first decisions the doubt is 8, and all limits are infinity."
  if (is_one_of_the_first(decision)) {
    for (std::vector<float>& of_unit : plan.limits) {
      of_unit.assign(of_unit.size(), std::numeric_limits<float>::infinity());
    }
  }
  undecided_.push_back(plan);
  return undecided_.back();
}

// "1.25 times the `limit` of Outliers for a patrol's error, by what is learned now, rounded to a float (IEEE single)
// towards +infinity."
std::vector<std::vector<float>> GatedJudge::limits(const std::string& gate) const {
  std::vector<std::vector<float>> limits;
  for (const std::vector<Place>& places : places_) {
    std::vector<float> of_unit;
    for (std::size_t place = 0; place < places.size(); ++place) {
      // "All limits are infinity where the gate may close for a trial, the guard is not skip, and acute recoveries with
      // more than two steps left have all max_o places (above 0)."
      const bool none = gate == "trial" && options_.guard != "skip" && controller_.is_full(2);
      const double most = none ? std::numeric_limits<double>::infinity()
                               : 1.25 * limit(places[place], std::nullopt, x_[place], /*of_trial=*/false);
      const int usual_mode = std::fegetround();
      std::fesetround(FE_UPWARD);
      const volatile double exact = most;
      volatile float rounded = 0;
      rounded = static_cast<float>(exact);
      std::fesetround(usual_mode);
      of_unit.push_back(static_cast<float>(rounded));
    }
    limits.push_back(of_unit);
  }
  return limits;
}

// "4. When the step begins the caller may forbid: then it is plain, and its gate does not close."
const Plan& GatedJudge::begin(bool forbidden) {
  Plan& plan = undecided_.back();
  plan.forbidden = forbidden;
  if (forbidden) {
    plan.pass = "plain";
    plan.gate = "none";
    plan.limits.clear();
  }
  // "The plan of a plain step names the units in recovery ..."
  if (plan.pass == "plain") {
    plan.measure = measure(plan.step, plan.high);
  }
  return plan;
}

void GatedJudge::trial_fails() {
  undecided_.back().pass = "plain";
  undecided_.back().failed = true;
}

bool GatedJudge::closes(const Norms& norms, const Errors& errors) {
  const Plan& plan = undecided_.back();
  // "with the histories that the observations through t-1 have left, as far as they were not withdrawn"
  Controller after = beside_;
  const Decision observed = after.observe(norms);
  bool free_risk = false;
  bool non_finite_risk = false;
  std::int64_t sampled = 0;
  std::int64_t finite = 0;
  std::int64_t finite_risks = 0;
  // "Without limits S is empty and the patrol is not complete."
  bool outlier = false;
  bool complete = !plan.limits.empty();
  for (std::size_t unit = 0; unit < norms.size(); ++unit) {
    const Signals& signals = observed.signals[unit];
    bool measured = false;
    for (std::size_t place = 0; place < x_.size() && !errors.empty() && !plan.limits.empty(); ++place) {
      const double error = errors[unit * x_.size() + place];
      // "S is the set of the free units with an error that is infinite or, both taken as doubles, greater than its
      // limit"
      const bool above = std::isinf(error) || error > static_cast<double>(plan.limits[unit][place]);
      outlier = outlier || (above && plan.free[unit]);
      measured = measured || !std::isnan(error);
    }
    const bool no_sample = !norms[unit] || !signals.sampled || (*norms[unit] == 0 && plan.zero_is_no_sample[unit]);
    if (no_sample) {
      continue;
    }
    const bool is_finite = std::isfinite(*norms[unit]);
    complete = complete && (measured || !plan.free[unit]);
    sampled = sampled + 1;
    finite = finite + (is_finite ? 1 : 0);
    finite_risks = finite_risks + (is_finite && signals.at_risk ? 1 : 0);
    // "where the risk of some free unit counts ... the doubt are those of the plan"
    const bool counts = signals.at_risk && (plan.doubt == 1 || signals.severity > static_cast<double>(plan.doubt));
    free_risk = free_risk || (counts && plan.free[unit]);
    non_finite_risk = non_finite_risk || !is_finite;
  }
  // "Common, where common_share < 1: at least 10 sampled units have a finite norm and more than common_share of these
  // are at risk; or at least 10 units are sampled and none has a finite norm."
  const bool many =
      finite >= 10 && static_cast<double>(finite_risks) > options_.common_share * static_cast<double>(finite);
  const bool common = options_.common_share < 1 && (many || (sampled >= 10 && finite == 0));
  // "The step is alarmed if S is not empty; or some unit, free or not, has a non-finite risk; or, where the patrol is
  // not complete, the risk of some free unit counts."
  const bool alarmed = outlier || non_finite_risk || (!complete && free_risk);
  // "for a trial where the step is alarmed; for the guard where S is not empty, or where the step is alarmed, the risk
  // of some free unit counts and the step is not common"
  const bool for_trial = plan.gate == "trial" && alarmed;
  const bool for_guard = plan.gate == "guard" && (outlier || (alarmed && free_risk && !common));
  if (!for_trial) {
    beside_ = after;
  }
  return for_trial || for_guard;
}

Ruling GatedJudge::decide_without_candidates(Heard heard) {
  heard.decider = "nobody";
  heard.asking.clear();
  heard.action_without_trial = "proceed";
  heard_ = heard;
  return decide();
}

Settled GatedJudge::settle(const Norms& norms, const Errors& errors, bool held) {
  const Plan plan = undecided_.front();
  Settled settled;
  // "the batches that wait, with the one of the step if it comes again; the other steps that n ... counts; and a trial
  // that is called"
  to_come_ = to_come(&undecided_.front());
  if (plan.failed) {
    controller_.has_trial();
  }
  if (plan.pass == "trial") {
    // "decided as in Trial and verdict from its own norms and errors, there being no other observation"
    heard_ = Heard{norms, controller_, {}, {}, {}, "", {}, "proceed", {}};
    heard_->hearing.action = "trial";
    settled.ruling = conclude(norms, errors);
  } else if (held && plan.gate == "trial") {
    // "the observation is withdrawn, and nothing is learned from errors. It is decided as a step in which no unit has a
    // sample: no risk, not common, no candidates"
    settled.hearing.told = hear(norms, errors, /*may_rerun=*/false).told;
    settled.hearing.alarmed = true;
    settled.hearing.action = "trial";
    heard_.reset();
    const Norms none(norms.size());
    hear(none, {}, /*may_rerun=*/false);
    to_come_ = to_come_ + 1;
    settled.ruling = decide_without_candidates(*heard_);
    waiting_.push_back({plan.batch, "trial"});
  } else {
    // "reported and decided as in Report where no rerun may be"
    settled.hearing = hear(norms, errors, /*may_rerun=*/false);
    settled.hearing.action = "proceed";
    const Plan& itself = undecided_.front();
    const std::vector<Candidate> s = s_of(settled.hearing.told, heard_->judged);
    bool no_candidates = false;
    if (held) {
      settled.hearing.alarmed = true;
      settled.hearing.dismissed = false;
      settled.hearing.spent = false;
      settled.hearing.action = options_.guard == "replay" ? "replay" : "hold";
    } else if (selector_ == "trial" && plan.pass == "plain") {
      // "Where S is not empty, the caller does not forbid step t, a rerun may be and pays: a trial is called, and there
      // are no candidates." "A trial that fails ... calls nothing"
      settled.called =
          !s.empty() && !plan.forbidden && !plan.failed && rerun_may_be(&itself) && pays(s, heard_->observed);
      // "Where S is empty and the gate might have closed for a trial: there are no candidates, and the step is not
      // alarmed; it is dismissed if Report dismisses it."
      no_candidates = settled.called || (s.empty() && plan.gate == "trial");
      if (no_candidates) {
        settled.hearing.spent = false;
        settled.hearing.alarmed = settled.called;
      }
    } else if (selector_ == "norms" && plan.gate != "none") {
      // "With the selector norms a step whose gate might have closed is not spent."
      settled.hearing.spent = false;
    }
    if (settled.called || (held && options_.guard == "replay")) {
      to_come_ = to_come_ + 1;
    }
    settled.ruling = no_candidates ? decide_without_candidates(*heard_) : decide();
    if (held && options_.guard == "replay") {
      waiting_.push_back({plan.batch, "replay"});
    }
  }
  // "A rerun counts as one at its own step."
  last_decisions_.back() = plan.pass != "plain" || plan.failed;
  settled.ruling.action = settled.hearing.action;
  called_ = settled.called;
  undecided_.pop_front();
  return settled;
}

}  // namespace gnmr::naive

// SPDX-License-Identifier: Apache-2.0
#include "gnmr/core/judge_gated.h"

#include <algorithm>
#include <string>
#include <utility>

#include "gnmr/core/error.h"

namespace gnmr {
namespace {

[[noreturn]] void reject(std::int64_t step, const std::string& what) {
  throw Error("[step " + std::to_string(step) + "] expected " + what);
}

}  // namespace

GatedSteps::GatedSteps(Judge& judge)
    : judge_(judge),
      no_norms_(judge.controller().units().size(), 0.0),
      no_samples_(judge.controller().units().size(), 0) {
  // A step allocates nothing: a cap is at most a hundred.
  state_.waiting.reserve(100);
  state_.undecided.reserve(2);
}

void GatedSteps::check(const Options& options) {
  if (options.lag == 0) return;
  if (options.guard == Guard::clip) {
    throw Error(
        "option `guard`: expected none, skip or replay with lag 1, got clip: the update does not wait for the host; "
        "use lag 0 to clip");
  }
  const bool by_errors = options.selector == Selector::evidence || options.selector == Selector::evidence_after_alarm;
  if (by_errors && options.guard != Guard::none) {
    throw Error(
        "option `guard`: expected none with lag 1 and a selector that goes by errors, which come after the update; use "
        "lag 0, or the selector trial or norms");
  }
}

std::int64_t GatedSteps::take_batch(std::int64_t step) {
  if (state_.next_batch == 0) state_.next_batch = step;
  if (state_.waiting.empty()) return state_.next_batch++;
  const std::int64_t batch = state_.waiting.front().batch;
  state_.waiting.erase(state_.waiting.begin());
  return batch;
}

bool GatedSteps::brings_rerun(const StepPlan& plan) const {
  return plan.pass != PassKind::step || plan.hold == HoldRule::for_trial ||
         (plan.hold == HoldRule::for_guard && judge_.guard() == Guard::replay);
}

/// Whether one more rerun stays within the cap, whatever comes of the steps that are not decided.
bool GatedSteps::rerun_may_be(std::size_t first_undecided) const {
  std::size_t to_come = state_.waiting.size();
  for (std::size_t index = first_undecided; index < state_.undecided.size(); ++index) {
    if (state_.undecided[index].may_rerun) ++to_come;
  }
  return to_come < judge_.reruns_left();
}

HoldRule GatedSteps::hold_rule(bool may_rerun) const {
  const Guard guard = judge_.guard();
  if (judge_.selector() == Selector::trial) {
    if (may_rerun) return HoldRule::for_trial;
    return guard == Guard::skip ? HoldRule::for_guard : HoldRule::never;
  }
  // Errors come too late for the others.
  if (judge_.selector() != Selector::norms) return HoldRule::never;
  return guard == Guard::skip || (guard == Guard::replay && may_rerun) ? HoldRule::for_guard : HoldRule::never;
}

const StepPlan& GatedSteps::plan(std::int64_t step) {
  if (!state_.undecided.empty()) {
    const std::int64_t last = state_.undecided.back().plan.step;
    if (last == step) return state_.undecided.back().plan;
    if (last + 1 != step || state_.undecided.size() > 1) {
      reject(step, "the decision of step " + std::to_string(state_.undecided.front().plan.step) +
                       " before the plan of another than the one after it");
    }
  }
  if (state_.next_batch == 0) state_.next_batch = step;
  StepPlan next{.step = step};
  if (!state_.waiting.empty()) {
    next.batch = state_.waiting.front().batch;
    next.pass = state_.waiting.front().pass;
    next.again = true;
    state_.waiting.erase(state_.waiting.begin());
  } else {
    next.batch = state_.next_batch++;
  }
  if (std::exchange(state_.called, false)) next.pass = PassKind::trial;
  if (next.pass == PassKind::step) next.hold = hold_rule(rerun_may_be(0));
  state_.undecided.push_back({.plan = next, .may_rerun = brings_rerun(next)});
  return state_.undecided.back().plan;
}

const StepPlan& GatedSteps::begin(std::int64_t step, bool in_force) {
  plan(step);
  UndecidedStep& begun = state_.undecided.back();
  if (begun.begun) reject(step, "each step to begin once");
  begun.begun = true;
  begun.in_force = in_force;
  if (!in_force) {
    begun.plan.pass = PassKind::step;
    begun.plan.hold = HoldRule::never;
  }
  return begun.plan;
}

void GatedSteps::trial_failed() {
  if (state_.undecided.empty() || state_.undecided.back().plan.pass != PassKind::trial) {
    throw Error("expected begin() of a trial before trial_failed()");
  }
  state_.undecided.back().plan.pass = PassKind::step;
  state_.undecided.back().failed = true;
}

const Hearing& GatedSteps::hear(const Observation& observation, std::span<const double> errors, bool held) {
  if (heard_) reject(observation.step, "decide() before another step is heard");
  if (state_.undecided.size() != 2 || state_.undecided.front().plan.step != observation.step) {
    reject(observation.step, "a step that has begun, is the oldest without a decision, and has one planned after it");
  }
  const UndecidedStep& step = state_.undecided.front();
  if (held && step.plan.hold == HoldRule::never) reject(observation.step, "a step that may not be held to be open");
  passes_over_ = false;
  calls_ = false;
  if (step.plan.pass == PassKind::trial) {
    ruling_ = judge_.conclude_alone(observation, errors);
    hearing_ = {.step = observation.step};
    heard_ = true;
    return hearing_;
  }
  hearing_ = judge_.hear(observation, errors, /*may_rerun=*/false);
  heard_ = true;
  hearing_.action = Action::proceed;
  if (!held) {
    hear_free(step);
    return hearing_;
  }
  hearing_.alarmed = true;
  hearing_.dismissed = false;
  hearing_.spent = false;
  hearing_.action = step.plan.hold == HoldRule::for_trial ? Action::trial
                    : judge_.guard() == Guard::replay     ? Action::replay
                                                          : Action::hold;
  return hearing_;
}

/// A step whose update was made: errors may call a trial; what its norms say, the gate has heard.
void GatedSteps::hear_free(const UndecidedStep& step) {
  if (judge_.selector() != Selector::trial) {
    hearing_.spent = hearing_.spent && step.plan.hold == HoldRule::never;
    return;
  }
  const bool named = std::any_of(hearing_.standing_out.begin(), hearing_.standing_out.end(),
                                 [this](UnitIndex unit) { return judge_.controller().is_free(unit); });
  const bool plain = step.plan.pass == PassKind::step && !step.failed;
  calls_ = named && plain && step.in_force && rerun_may_be(1);
  passes_over_ = calls_ || (!named && step.plan.hold == HoldRule::for_trial);
  if (!passes_over_) return;
  hearing_.spent = false;
  hearing_.dismissed = false;
  hearing_.alarmed = calls_;
}

const Ruling& GatedSteps::decide() {
  if (!heard_) throw Error("expected hear() before decide()");
  heard_ = false;
  const UndecidedStep step = state_.undecided.front();
  if (step.plan.pass != PassKind::trial) {
    if (hearing_.action == Action::trial) {
      judge_.withdraw();
      judge_.hear({.step = step.plan.step, .norms = no_norms_, .sampled = no_samples_}, {}, /*may_rerun=*/false);
    }
    ruling_ = passes_over_ ? judge_.pass_over() : judge_.decide();
    if (step.plan.pass == PassKind::replay || step.failed) judge_.count_rerun();
  }
  ruling_.action = hearing_.action;
  ruling_.clip = {};
  if (hearing_.action == Action::trial) state_.waiting.push_back({step.plan.batch, PassKind::trial});
  if (hearing_.action == Action::replay) state_.waiting.push_back({step.plan.batch, PassKind::replay});
  state_.called = calls_;
  state_.undecided.erase(state_.undecided.begin());
  return ruling_;
}

void GatedSteps::restore(const GatedState& state, bool gated) {
  state_ = state;
  heard_ = false;
  // A run of a step is no part of a state.
  if (!state_.undecided.empty()) state_.undecided.back().begun = false;
  if (gated) return;
  state_.called = false;
  for (auto planned = state_.undecided.rbegin(); planned != state_.undecided.rend(); ++planned) {
    state_.waiting.insert(state_.waiting.begin(), {planned->plan.batch, PassKind::step});
  }
  state_.undecided.clear();
}

}  // namespace gnmr

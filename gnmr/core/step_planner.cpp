// SPDX-License-Identifier: Apache-2.0
#include "gnmr/core/step_planner.h"

#include <algorithm>
#include <string>
#include <utility>

#include "gnmr/core/error.h"
#include "gnmr/core/message_text.h"

namespace gnmr {

void check_guard_with_lag(const Options& options, const PlanRules& rules) {
  if (options.lag == 0) return;
  if (rules.guard == Guard::clip) {
    throw Error(
        "option `guard`: expected none, skip or replay with lag 1, got clip: the update does not wait for the host; "
        "use lag 0 to clip");
  }
  const bool by_errors = rules.selector == Selector::evidence || rules.selector == Selector::evidence_after_alarm;
  if (by_errors && rules.guard != Guard::none) {
    throw Error(
        "option `guard`: expected none with lag 1 and a selector that goes by errors, which come after the update; use "
        "lag 0, or the selector trial or norms");
  }
}

StepPlanner::StepPlanner(const PlanRules& rules) : rules_(rules) {
  // A step allocates nothing: a limit of reruns is at most a hundred.
  state_.waiting.reserve(100);
  state_.undecided.reserve(2);
}

std::int64_t StepPlanner::take_batch(std::int64_t step) {
  if (state_.next_batch == 0) state_.next_batch = step;
  if (state_.waiting.empty()) return state_.next_batch++;
  const std::int64_t batch = state_.waiting.front().batch;
  state_.waiting.erase(state_.waiting.begin());
  return batch;
}

bool StepPlanner::brings_rerun(const PlannedStep& step) const {
  return step.pass != PassKind::step || step.hold == HoldRule::for_trial ||
         (step.hold == HoldRule::for_guard && rules_.guard == Guard::replay);
}

/// Reruns that batches wait for, or that steps without a decision may bring about.
std::uint32_t StepPlanner::to_come(std::size_t first_undecided) const {
  auto reruns = static_cast<std::uint32_t>(state_.waiting.size());
  for (std::size_t index = first_undecided; index < state_.undecided.size(); ++index) {
    if (state_.undecided[index].may_rerun) ++reruns;
  }
  return reruns;
}

HoldRule StepPlanner::hold_rule(bool may_rerun) const {
  if (!rules_.can_hold) return HoldRule::never;
  const Guard guard = rules_.guard;
  if (rules_.selector == Selector::trial) {
    if (may_rerun) return HoldRule::for_trial;
    return guard == Guard::skip ? HoldRule::for_guard : HoldRule::never;
  }
  // Errors come too late for the others.
  if (rules_.selector != Selector::norms) return HoldRule::never;
  return guard == Guard::skip || (guard == Guard::replay && may_rerun) ? HoldRule::for_guard : HoldRule::never;
}

bool StepPlanner::plan(std::int64_t step, const RerunRoom& reruns) {
  if (!state_.undecided.empty()) {
    PlannedStep& last = state_.undecided.back();
    if (last.step == step) return false;
    if (!rules_.can_hold && state_.undecided.size() == 1 && !last.begun &&
        last.step < step) {  // a log may leave steps out
      last.step = step;
      return false;
    }
    if (last.step + 1 != step || state_.undecided.size() > 1) {
      reject_step(step, "the report of step " + std::to_string(state_.undecided.front().step) +
                            " before the plan of another than the one after it");
    }
  }
  if (state_.next_batch == 0) state_.next_batch = step;
  PlannedStep next{.step = step};
  if (!state_.waiting.empty()) {
    next.batch = state_.waiting.front().batch;
    next.pass = state_.waiting.front().pass;
    next.again = true;
    state_.waiting.erase(state_.waiting.begin());
  } else {
    next.batch = state_.next_batch++;
  }
  if (std::exchange(state_.called, false)) next.pass = PassKind::trial;
  if (next.pass == PassKind::step) next.hold = hold_rule(reruns.allows(to_come(0)));
  next.may_rerun = brings_rerun(next);
  state_.undecided.push_back(next);
  return true;
}

const PlannedStep& StepPlanner::begin(std::int64_t step, bool armed) {
  PlannedStep& begun = state_.undecided.back();
  if (begun.begun) reject_step(step, "each step to begin once");
  begun.begun = true;
  begun.in_force = armed;
  if (!armed) {
    begun.pass = PassKind::step;
    begun.hold = HoldRule::never;
  }
  return begun;
}

void StepPlanner::decided(PassKind again, bool calls_trial) {
  if (again != PassKind::step) state_.waiting.push_back({state_.undecided.front().batch, again});
  state_.called = calls_trial;
  state_.undecided.erase(state_.undecided.begin());
}

void StepPlanner::restore(const PlanState& state, int lag, std::span<const UnitIndex> released) {
  state_ = state;
  if (!state_.undecided.empty()) {
    state_.undecided.back().begun = false;  // a run of a step is not part of a state
    state_.recovered_is_next = false;
    std::erase_if(state_.recovered,
                  [released](UnitIndex unit) { return std::binary_search(released.begin(), released.end(), unit); });
  }
  if (rules_.selector != Selector::trial) {
    for (std::uint8_t& flags : state_.flags) flags &= static_cast<std::uint8_t>(~gate_flag::kDoubt);
  }
  if (lag != 0) return;
  state_.recovered.clear();
  state_.recovered_is_next = false;
  state_.flags.clear();
  state_.called = false;
  for (auto planned = state_.undecided.rbegin(); planned != state_.undecided.rend(); ++planned) {
    state_.waiting.insert(state_.waiting.begin(), {planned->batch, PassKind::step});
  }
  state_.undecided.clear();
}

}  // namespace gnmr

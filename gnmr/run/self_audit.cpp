// SPDX-License-Identifier: Apache-2.0
#include "gnmr/run/self_audit.h"

#include <algorithm>

#include "gnmr/io/journal.h"

namespace gnmr::run {
namespace {

constexpr std::size_t kFewestOccasions = 3;  // below this nothing can be concluded

}  // namespace

void SelfAudit::reported(const ReportedRun& run) {
  if (disarm_after_ == 0 || !run.is_decided) return;
  const Decision& decision = run.outcome.decision;
  const std::optional<bool> has_helped = helped(run);
  standing_.assign(decision.standing.begin(), decision.standing.end());
  if (!run.plan.in_force) return;
  std::optional<std::string> why = add(decision.step, has_helped);
  if (run.controller.options().lag == 0) {
    conclusion_ = std::move(why);
  } else if (why && state_.disarm_step == 0) {
    state_.disarm_step = decision.step + 2;
    state_.disarm_why = *why;
  }
}

/// Whether what was done helped; none where nothing was done.
std::optional<bool> SelfAudit::helped(const ReportedRun& run) const {
  const Outcome& outcome = run.outcome;
  if (run.ran == PassKind::trial) {
    const std::optional<RerunContext>& rerun = run.notes.rerun;
    // What is not a number is as far away as can be.
    const bool far = rerun && rerun->distance && !(*rerun->distance < io::kHelpfulDistance);
    return outcome.verdict == Verdict::numeric || (outcome.verdict == Verdict::unlocated && far);
  }
  if (run.controller.selector() != Selector::norms) return {};
  const std::span<const UnitIndex> released = outcome.decision.released;
  const bool is_acute = std::any_of(released.begin(), released.end(), [&](UnitIndex unit) {
    return !std::binary_search(standing_.begin(), standing_.end(), unit);
  });
  return is_acute ? std::optional(outcome.decision.futile.empty()) : std::nullopt;
}

/// One more decided step that was in force. The text says why to disarm.
std::optional<std::string> SelfAudit::add(std::int64_t step, std::optional<bool> helped) {
  auto& occasions = state_.occasions;
  if (helped) occasions.emplace_back(step, *helped);
  while (!occasions.empty() && occasions.front().first <= step - disarm_after_) occasions.pop_front();
  if (occasions.size() < kFewestOccasions || step < disarm_after_) return {};
  if (std::any_of(occasions.begin(), occasions.end(), [](const auto& one) { return one.second; })) return {};
  return "nothing that was done in the last " + std::to_string(disarm_after_) + " steps helped (" +
         std::to_string(occasions.size()) + " occasions)";
}

void SelfAudit::restore(SelfAuditState state, const Controller& controller) {
  state_ = std::move(state);
  conclusion_.reset();
  standing_.clear();
  if (disarm_after_ == 0) return;
  const ControllerState learned = controller.save();
  for (UnitIndex unit = 0; unit < learned.units.size(); ++unit) {
    if (learned.units[unit].standing_key > 0) standing_.push_back(unit);
  }
}

}  // namespace gnmr::run

// SPDX-License-Identifier: Apache-2.0
#include "gnmr/run/self_audit.h"

#include <algorithm>

namespace gnmr::run {
namespace {

constexpr std::size_t kFewestOccasions = 3;  // below this nothing can be concluded

}  // namespace

std::optional<std::string> SelfAudit::add(std::int64_t step, std::optional<bool> helped) {
  if (disarm_after_ == 0) return {};
  auto& occasions = state_.occasions;
  if (helped) occasions.emplace_back(step, *helped);
  while (!occasions.empty() && occasions.front().first <= step - disarm_after_) occasions.pop_front();
  if (occasions.size() < kFewestOccasions || step < disarm_after_) return {};
  if (std::any_of(occasions.begin(), occasions.end(), [](const auto& one) { return one.second; })) return {};
  return "nothing that was done in the last " + std::to_string(disarm_after_) + " steps helped (" +
         std::to_string(occasions.size()) + " occasions)";
}

void SelfAudit::disarm_at(std::int64_t step, const std::string& why) {
  if (state_.disarm_step != 0) return;
  state_.disarm_step = step;
  state_.disarm_why = why;
}

std::optional<std::string> SelfAudit::due(std::int64_t step) const {
  if (state_.disarm_step == 0 || step < state_.disarm_step) return {};
  return state_.disarm_why;
}

}  // namespace gnmr::run

// SPDX-License-Identifier: Apache-2.0
// What happened to standing recoveries in a run of the naive implementation: for tests that want everything to happen.
#pragma once

#include <algorithm>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "core/naive_controller.h"

namespace gnmr::testing {

/// What happened to standing recoveries, by name, how often.
class StandingEvents {
 public:
  void count(const naive::Decision& decision, bool review, std::map<std::string, int>& counts) {
    const auto times = [](bool holds) { return holds ? 1 : 0; };
    for (const std::size_t unit : decision.standing) {
      counts["standing: admitted"] += times(std::ranges::count(before_, unit) == 0);
      const bool was_acute = std::ranges::count(acute_before_, unit) > 0;
      counts["standing: admitted where it was released"] += times(was_acute);
    }
    for (const std::size_t unit : decision.displaced) {
      counts["standing: displaced"] += 1;
      counts["standing: displaced in a review"] += times(review);
      counts["standing: displaced and admitted again"] += times(std::ranges::count(decision.standing, unit) > 0);
    }
    counts["standing: several displaced"] += times(decision.displaced.size() > 1);
    counts["standing: replaced"] += static_cast<int>(decision.replaced.size());
    for (const std::size_t unit : decision.released) {
      const bool otherwise = std::ranges::count(decision.displaced, unit) + std::ranges::count(decision.replaced, unit);
      const bool ended = !otherwise && std::ranges::count(before_, unit) > 0;
      counts["standing: ended by a review"] += times(ended);
      counts["standing: ended and admitted"] += times(ended && std::ranges::count(decision.admitted, unit) > 0);
    }
    for (const std::size_t unit : decision.filling) {
      counts["standing: fills"] += times(std::ranges::count(before_, unit) == 0);
      counts["standing: fills after it was coarse"] +=
          times(std::ranges::count(before_, unit) > 0 && std::ranges::count(filling_before_, unit) == 0);
    }
    for (const std::size_t unit : filling_before_) {
      const bool stands = std::ranges::count(decision.standing, unit) > 0;
      counts["standing: coarse after it filled"] += times(stands && std::ranges::count(decision.filling, unit) == 0);
      counts["standing: filling one replaced"] += times(std::ranges::count(decision.replaced, unit) > 0);
    }
    filling_before_ = decision.filling;
    before_ = decision.standing;
    acute_before_.clear();
    std::ranges::set_difference(decision.recovered, decision.standing, std::back_inserter(acute_before_));
  }

 private:
  std::vector<std::size_t> before_, filling_before_, acute_before_;
};

}  // namespace gnmr::testing

// SPDX-License-Identifier: Apache-2.0
// Ranges of settings, and the message for one that is wrong.
//
// Goals: every message names the setting, what was expected and what came. Non-goals: which settings there are.
#pragma once

#include <cstdint>
#include <limits>
#include <string_view>

namespace gnmr::run {

inline constexpr std::int64_t kMostSteps = 2147483647;  // as the controller counts

/// Numbers from `low` to `high`, each included unless it is open. NaN and infinity lie in no interval.
struct Interval {
  double low = 0;
  double high = std::numeric_limits<double>::infinity();
  bool low_open = false;
  bool high_open = false;

  bool contains(double value) const;
};

/// Throws the `Error` for a setting that is wrong.
[[noreturn]] void refuse_setting(std::string_view name, std::string_view expected, std::string_view got);

/// Throws it where the value is outside.
void check_whole(std::string_view name, std::int64_t value, std::int64_t low, std::int64_t high);
void check_number(std::string_view name, double value, const Interval& range, std::string_view expected);

}  // namespace gnmr::run

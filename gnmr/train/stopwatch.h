// SPDX-License-Identifier: Apache-2.0
// Seconds of wall time.
#pragma once

#include <chrono>

namespace gnmr::train {

using Clock = std::chrono::steady_clock;

inline double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace gnmr::train

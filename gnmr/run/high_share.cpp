// SPDX-License-Identifier: Apache-2.0
#include "gnmr/run/high_share.h"

#include <fmt/format.h>

#include <algorithm>

namespace gnmr::run {

HighShares HighCounts::shares() const {
  if (unit_steps == 0) return {};
  const auto all = static_cast<double>(unit_steps);
  const std::uint64_t held = std::min(standing, recovered);
  return {.acute = static_cast<double>(recovered - held) / all,
          .standing = static_cast<double>(held) / all,
          .reruns = static_cast<double>(rerun_high) / all};
}

std::optional<HighShares> high_shares(std::span<const TrainLine> lines, std::int64_t units) {
  if (lines.empty() || units <= 0) return std::nullopt;
  // Not as whole numbers: those of a damaged file may be as large as numbers can be.
  HighShares sums;
  for (const TrainLine& line : lines) {
    if (!line.recovered || !line.standing || !line.rerun_high) return std::nullopt;
    if (*line.recovered < 0 || *line.standing < 0 || *line.rerun_high < 0) return std::nullopt;
    const std::int64_t held = std::min(*line.standing, *line.recovered);
    sums.acute += static_cast<double>(*line.recovered - held);
    sums.standing += static_cast<double>(held);
    sums.reruns += static_cast<double>(*line.rerun_high);
  }
  const double all = static_cast<double>(lines.size()) * static_cast<double>(units);
  return HighShares{.acute = sums.acute / all, .standing = sums.standing / all, .reruns = sums.reruns / all};
}

std::string high_shares_text(const HighShares& shares) {
  return fmt::format(
      "{:.2f}% of unit-steps in high precision: {:.2f}% acute recovery, {:.2f}% standing recovery, {:.2f}% reruns",
      100 * shares.total(), 100 * shares.acute, 100 * shares.standing, 100 * shares.reruns);
}

}  // namespace gnmr::run

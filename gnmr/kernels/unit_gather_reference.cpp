// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "gnmr/core/error.h"
#include "gnmr/kernels/unit_gather.h"
#include "gnmr/kernels/unit_step.h"

namespace gnmr::kernels {

void check_lists(const UnitLists& lists) {
  const bool good = !lists.first.empty() && lists.first.front() == 0 && lists.first.back() == lists.indices.size() &&
                    std::is_sorted(lists.first.begin(), lists.first.end());
  if (!good) throw Error("[gather] expected the first index of each unit's list, ascending from 0, and the end of all");
}

void reference_gather(const UnitLists& lists, const double* sums, std::uint32_t count, const double* more,
                      double* norms, std::uint8_t* sampled) {
  for (std::size_t unit = 0; unit + 1 < lists.first.size(); ++unit) {
    double square = 0;
    for (std::uint32_t at = lists.first[unit]; at < lists.first[unit + 1]; ++at) {
      const std::uint32_t index = lists.indices[at];
      square += index < count ? sums[index] : more[index - count];
    }
    norms[unit] = std::sqrt(square);
    sampled[unit] = lists.first[unit] < lists.first[unit + 1] ? 1 : 0;
  }
}

void reference_judge(const UnitLists& lists, const JudgedErrors& errors, std::uint8_t* patrol) {
  const std::size_t places = lists.first.size() - 1;
  for (std::size_t place = 0; place < places; ++place) {
    std::uint8_t& flags = patrol[place / errors.sites];
    if (place % errors.sites == 0) flags = 0;
    for (std::uint32_t at = lists.first[place]; at < lists.first[place + 1] && *errors.wanted != 0; ++at) {
      const ErrorTotals& totals = errors.totals[lists.indices[at]];
      if (!(totals.measured > 0)) continue;
      const bool is_equal = totals.difference == 0;
      const bool is_lost = !is_equal && !(totals.reference > 0);
      const double error = is_equal ? 0 : std::sqrt(totals.difference / totals.reference);
      if (std::isnan(error) && !is_lost) continue;  // of two infinities nothing is known
      flags |= patrol_flag::kMeasured;
      const bool is_above = is_lost || std::isinf(error) || error > static_cast<double>(errors.limits[place]);
      if (is_above) flags |= patrol_flag::kStandsOut;
    }
  }
}

}  // namespace gnmr::kernels

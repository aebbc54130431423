// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "gnmr/core/error.h"
#include "gnmr/kernels/unit_gather.h"

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

}  // namespace gnmr::kernels

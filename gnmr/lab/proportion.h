// SPDX-License-Identifier: Apache-2.0
// A proportion and what few cases say of it.
//
// Goals: an interval that is never too narrow: 60 of 60 are no 100% but at least 94%. Non-goals: cases that depend on
// each other; whoever counts must say so.
#pragma once

#include <cstdint>
#include <string>

namespace gnmr::lab {

/// `hits` of `cases`, which are at least 1, with the 95% interval of Clopper and Pearson.
struct Proportion {
  std::uint64_t hits = 0;
  std::uint64_t cases = 0;
  double low = 0;
  double high = 1;

  double value() const { return static_cast<double>(hits) / static_cast<double>(cases); }
};

/// The proportion with its interval; more hits than cases count as all.
Proportion proportion(std::uint64_t hits, std::uint64_t cases);

/// `60 of 60 [94, 100]`, the ends in percent.
std::string proportion_text(const Proportion& proportion);

}  // namespace gnmr::lab

// SPDX-License-Identifier: Apache-2.0
// A naive second implementation of "Levels", "Coarse units" and "Filling units" of docs/algorithm.md, written from that
// page alone: see naive_controller.h for its manners.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "naive_controller.h"

namespace gnmr::naive {

// "the binary logarithm, linear between powers of two", and "its inverse"
double lg(double x);
double ex(double y);

class Levels {
 public:
  Levels(std::vector<Unit> units, const Options& options, std::size_t sites);

  // Takes in the error of a site that was measured. The errors of a decision come after its review.
  void take_in(std::int64_t decision, std::size_t unit, std::size_t site, double error);

  // The level, where it is known in this decision.
  std::optional<double> known(std::int64_t decision, std::size_t unit, std::size_t site) const;

  // Which units are coarse or fill in this decision, with their keys; `standing`: for what each unit is in standing
  // recovery as it begins, none for the others.
  Review review(std::int64_t decision, const std::vector<RiskKind>& standing) const;

  // Whether the next error of the site starts anew.
  bool is_forgotten(std::int64_t decision, std::size_t unit, std::size_t site) const {
    return !is_recent(levels_.at(unit).at(site), decision);
  }

  std::int64_t n(std::size_t unit, std::size_t site) const { return levels_.at(unit).at(site).n; }
  double l(std::size_t unit, std::size_t site) const { return levels_.at(unit).at(site).l; }

 private:
  // "State of a site of a unit"
  struct Level {
    std::int64_t n = 0;
    double l = 0;
    double p = 1;
    std::optional<std::int64_t> last;  // "the decision that last took an error in"
  };

  static double level_of(const Level& state) { return state.l / (1 - state.p); }
  static bool is_recent(const Level& state, std::int64_t decision);
  std::optional<double> median(std::int64_t decision, std::size_t site) const;
  std::optional<double> coarse_key(std::int64_t decision, std::size_t unit, double f,
                                   const std::vector<std::optional<double>>& medians) const;
  std::optional<double> filling_key(std::int64_t decision, std::size_t unit, double f,
                                    const std::vector<std::optional<double>>& medians) const;

  std::vector<Unit> units_;
  Options options_;
  std::vector<std::vector<Level>> levels_;  // of each unit, of each site
};

}  // namespace gnmr::naive

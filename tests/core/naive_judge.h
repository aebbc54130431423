// SPDX-License-Identifier: Apache-2.0
// A naive second implementation of "Recovery that hits the right unit" and "Standing recovery" of docs/algorithm.md,
// written from that page alone: see naive_controller.h for its manners.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "naive_controller.h"
#include "naive_levels.h"

namespace gnmr::naive {

using Norms = std::vector<std::optional<double>>;
using Errors = std::vector<double>;  // units times places, NaN being not measured; empty: no patrol

struct Hearing {
  std::string action = "proceed";  // or hold, replay, trial
  bool alarmed = false;
  bool dismissed = false;
  bool spent = false;
  std::vector<std::size_t> told;
  std::vector<double> clip;  // empty: none
};

struct Ruling {
  std::string verdict = "none";
  std::string action = "proceed";  // or hold, replay
  std::vector<double> clip;
  Decision decision;
  std::vector<std::size_t> told;
  std::vector<double> errors;  // of those told, the one that stands out most
  std::vector<double> excesses;
  std::vector<std::size_t> places;
};

class Judge {
 public:
  // Throws std::invalid_argument where the page says that it is an error.
  Judge(std::vector<Unit> units, Options options, std::vector<double> expected, bool can_rerun);

  Hearing hear(const Norms& norms, const Errors& patrol, bool may_rerun);
  Ruling decide();
  Ruling conclude(const Norms& norms, const Errors& errors);
  void withdraw() { heard_.reset(); }

  // The units that the plan of a plain step names: those to be measured besides.
  std::vector<std::size_t> measure(std::int64_t step) const;

  const Controller& controller() const { return controller_; }
  std::int64_t k(std::size_t unit, std::size_t place) const { return places_.at(unit).at(place).k; }
  double m(std::size_t unit, std::size_t place) const { return places_.at(unit).at(place).m; }
  std::int64_t reruns() const;
  std::int64_t doubt() const { return doubt_; }
  std::int64_t doubt_holds_for() const { return doubt_left_; }
  const Levels& levels() const { return levels_; }
  std::int64_t decisions() const { return decisions_; }

 protected:  // for naive_judge_gated.h
  // "State of a place of a unit"
  struct Place {
    std::int64_t k = 0;
    double m = 0;
    double p = 1;
  };

  struct Judged {
    std::optional<double> error;  // none: not measured
    double excess = 0;
  };
  using AllJudged = std::vector<std::vector<Judged>>;  // of each unit, of each place

  struct Heard {
    Norms norms;
    Controller pending;  // with the observation taken in
    Decision observed;
    AllJudged judged;
    Hearing hearing;
    std::string decider;  // norms, S or nobody
    std::vector<Candidate> asking;
    std::string action_without_trial;
    std::vector<double> clip;
  };

  AllJudged judge(const Errors& errors, bool of_trial) const;
  std::optional<double> median(const AllJudged& judged, std::size_t place) const;
  double limit(const Place& state, std::optional<double> median, double x, bool of_trial) const;
  std::vector<std::size_t> told(const AllJudged& judged) const;
  static std::size_t worst_place(const std::vector<Judged>& places);
  std::vector<Candidate> free_ones(const std::vector<std::size_t>& units, const AllJudged& judged) const;
  std::vector<Candidate> s_of(const std::vector<std::size_t>& told, const AllJudged& judged) const;
  bool is_free(std::size_t unit) const;
  bool is_complete(const AllJudged& judged, const Decision& observed) const;
  bool some_free_unit_at_risk(const Decision& observed) const;
  bool counts(const Signals& signals) const;
  bool some_risk_of_a_free_unit_counts(const Decision& observed) const;
  std::optional<std::int64_t> decisions_since_rerun() const;
  bool within_the_limit(std::int64_t n) const;
  bool is_one_of_the_first(std::int64_t decision) const;
  std::int64_t doubt_in(std::int64_t decision) const;
  static bool some_non_finite_risk(const Decision& observed);
  bool pays(const std::vector<Candidate>& s, const Decision& observed) const;
  void choose_decider(Heard& heard, const std::vector<Candidate>& s, bool rerun_may_be) const;
  void apply_guard(Heard& heard, bool rerun_may_be) const;
  std::vector<double> clip(const Heard& heard) const;
  void learn(const AllJudged& judged);
  std::optional<Review> review(const Decision& observed) const;
  std::vector<std::size_t> measure(std::int64_t step, const std::vector<bool>& in_recovery) const;
  void end_step(const AllJudged& judged, bool had_rerun, const std::string& verdict);
  void tell(const AllJudged& judged, Ruling& ruling) const;

  Controller controller_;
  Options options_;
  std::vector<double> x_;
  std::string selector_;
  std::vector<std::vector<Place>> places_;
  Levels levels_;
  std::int64_t decisions_ = 0;       // the number of the next one
  std::deque<bool> last_decisions_;  // whether each had a rerun
  std::int64_t doubt_ = 1;
  std::int64_t doubt_left_ = 0;
  std::optional<Heard> heard_;
  std::int64_t to_come_ = 0;  // reruns, with a gate
};

}  // namespace gnmr::naive

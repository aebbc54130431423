// A naive second implementation of docs/algorithm.md, written from that page alone: an oracle for differential tests.
// SPDX-License-Identifier: Apache-2.0
//
// It follows the order of the page, one loop or one line per sentence, and makes no attempt at speed. Quoted comments
// are the sentences of docs/algorithm.md that the next lines carry out. It starts no threads; one controller belongs to
// one thread at a time. Compile with -ffp-contract=off.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

namespace gnmr::naive {

struct Unit {
  std::string name;
  std::int64_t cost = 1;
  std::string group;    // "" is no group
  bool forced = false;  // the user forces it high or low
};

struct Options {
  double beta = 0.9;
  double tau = 2.0;
  double delta_tau = 0.5;
  double fall_tau = 0.7;
  double baseline = 1.0;
  std::int64_t window = 5;
  double noise_factor = 8.0;
  double noise_beta = 0.98;
  double mean_cap = 2.0;
  std::int64_t warmup_samples = 20;
  double common_share = 0.9;
  std::int64_t lock_steps = 10;
  std::int64_t max_lock_steps = 160;
  std::int64_t cooldown_steps = 50;
  double max_o = 0.01;
  double max_cost = 1.0;
  std::int64_t group_max = 0;
  double max_high_share = 1;
  std::int64_t lag = 0;  // delays where a decision holds, changes no decision
  // Of "Recovery that hits the right unit" (naive_judge.h).
  std::string selector = "auto";
  std::string guard = "none";
  std::int64_t max_trials = 20;
  double error_factor = 4;
  double error_floor = 0.1;
  double error_ceiling = 4;
  double error_beta = 0.98;
  std::int64_t error_warmup = 10;
  // Of "Standing recovery" (naive_levels.h).
  double coarse_error = 0.2;
  double coarse_factor = 2;
  double coarse_fill = 0.2;

  static Options paper() {
    Options options;
    options.fall_tau = 0;
    options.baseline = 0;
    options.noise_factor = 0;
    options.mean_cap = 0;
    options.common_share = 1;
    options.max_lock_steps = 0;
    options.cooldown_steps = 0;
    options.selector = "norms";
    options.max_trials = 0;
    options.coarse_error = 0;
    options.coarse_fill = 0;
    return options;
  }
};

enum class RiskKind { none, non_finite, rise, fall, error, coarse, fill };

// What the page does not define is left empty: all three of a 0 and of no sample; delta and fall of a non-finite norm
// and of the first sample (k = 0).
struct Signals {
  bool sampled = false;
  bool at_risk = false;
  RiskKind kind = RiskKind::none;
  std::optional<double> ratio;
  std::optional<double> delta;
  std::optional<double> fall;
  double severity = 0;
};

// Who asks for recovery.
struct Candidate {
  std::size_t unit = 0;
  double severity = 0;
  RiskKind kind = RiskKind::none;
};

// For what a unit may be in standing recovery: it is coarse, or it fills.
struct Claim {
  RiskKind kind = RiskKind::none;
  double key = 0;
};

// What a review of standing recoveries knows of each unit: none where it is neither coarse nor filling.
using Review = std::vector<std::optional<Claim>>;

// Indices are in ascending order.
struct Decision {
  bool common = false;
  std::vector<std::size_t> admitted;  // acute ones
  std::vector<std::size_t> denied;
  std::vector<std::size_t> futile;
  std::vector<std::size_t> released;   // every unit whose recovery ended in this decision
  std::vector<std::size_t> recovered;  // after it, acute and standing
  std::vector<std::size_t> standing;   // of these, the standing ones
  std::vector<std::size_t> displaced;  // of those released, the standing ones that gave their place to a candidate
  std::vector<std::size_t> replaced;   // and those that gave it to another standing recovery
  std::vector<std::size_t> filling;    // of the standing ones, those that fill
  std::vector<Signals> signals;
  double centre = 1;
};

class Controller {
 public:
  // Throws std::invalid_argument for an option out of range, a bad cost, or a name that is empty or not unique.
  Controller(std::vector<Unit> units, Options options);

  // One norm per unit, std::nullopt being no sample. Throws std::invalid_argument for a negative norm, having changed
  // nothing.
  Decision step(const std::vector<std::optional<double>>& norms);

  // The two halves of a step. "Signals" and point 1 of "Decision": all but the lists of the decision is there. It
  // changes histories; who may want to withdraw it keeps a copy of the controller.
  Decision observe(const std::vector<std::optional<double>>& norms);

  // "Cap on high precision": what else the next decision has to know.
  void has_trial() { had_trial_ = true; }
  void expect_reruns(std::int64_t to_come) { to_come_ = to_come; }

  // "The cap pays for a rerun in Report if ..."
  bool pays_for_rerun(std::int64_t to_come) const;

  // "6. A replay at lag 0 takes the cost of the units in recovery after its decision, at the end of this."
  void replay();

  // Points 2 to 5 of "Decision"; the candidates are those of point 3, or the given ones. With "Reviews" of "Standing
  // recovery": `review` is there where the decision is one. "Doubt": only risks that count make candidates.
  void decide(const std::vector<std::optional<double>>& norms, Decision& decision,
              const std::optional<std::vector<Candidate>>& given, const std::optional<Review>& review = std::nullopt,
              std::int64_t doubt = 1);

  std::size_t size() const { return units_.size(); }
  const Unit& unit(std::size_t unit) const { return units_.at(unit); }
  const Options& options() const { return options_; }
  std::int64_t k(std::size_t unit) const { return histories_.at(unit).k; }
  double m(std::size_t unit) const { return histories_.at(unit).m; }
  double p(std::size_t unit) const { return histories_.at(unit).p; }
  double q(std::size_t unit) const { return histories_.at(unit).q; }
  double f(std::size_t unit) const { return histories_.at(unit).f; }
  double w(std::size_t unit) const { return histories_.at(unit).w; }
  std::vector<double> ratios(std::size_t unit) const { return oldest_first(histories_.at(unit).ratios); }
  std::vector<double> inverses(std::size_t unit) const { return oldest_first(histories_.at(unit).inverses); }
  bool in_recovery(std::size_t unit) const { return recoveries_.at(unit).in_recovery; }
  // For what the unit is in standing recovery; none: it is not.
  RiskKind standing_for(std::size_t unit) const {
    return is_standing(recoveries_.at(unit)) ? recoveries_.at(unit).admitted_for : RiskKind::none;
  }

  // "full is one with max_o above 0 of which acute recoveries with more than one step left have all max_o places"
  bool is_full(std::int64_t steps = 1) const;

  double key(std::size_t unit) const { return recoveries_.at(unit).key; }                // of a standing recovery
  std::int64_t steps_left(std::size_t unit) const { return recoveries_.at(unit).left; }  // 0 outside acute recovery
  std::int64_t wait(std::size_t unit) const { return recoveries_.at(unit).wait; }
  std::int64_t last_lock(std::size_t unit) const { return recoveries_.at(unit).last_lock; }  // 0 before the first
  bool zeros_ignored(std::size_t unit) const { return recoveries_.at(unit).zeros_ignored; }
  std::int64_t max_units() const { return max_units_; }
  std::int64_t cost_limit() const { return cost_limit_; }
  bool has_cap() const { return options_.max_high_share < 1; }
  std::int64_t bucket_size() const { return bucket_size_; }
  std::int64_t bucket() const { return bucket_; }

 private:
  // "State of a unit"
  struct History {
    std::int64_t k = 0;
    double m = 0;
    double p = 1;
    double q = 0;
    double f = 0;
    double w = 1;
    std::deque<double> ratios;    // oldest first
    std::deque<double> inverses;  // oldest first
  };

  struct Recovery {
    bool in_recovery = false;
    RiskKind admitted_for = RiskKind::none;
    std::int64_t left = 0;
    std::int64_t steps_in_recovery = 0;
    bool sampled_since_admission = false;
    double key = 0;  // of a standing recovery
    std::int64_t wait = 0;
    bool released_before = false;
    std::int64_t samples_since_release = 0;
    std::int64_t last_lock = 0;
    bool zeros_ignored = false;  // a futile recovery ended on a 0, and no finite norm other than 0 has come since
  };

  void check_options() const;
  void check_units() const;
  void set_limits();

  static std::vector<double> oldest_first(const std::deque<double>& kept) { return {kept.begin(), kept.end()}; }
  bool is_warm(const History& history) const { return history.k >= options_.warmup_samples; }

  // "noise = q / (1 - w)", "fall_noise = f / (1 - w)" "(both 0 while w = 1)"
  static double noise_of(const History& history) { return history.w == 1 ? 0 : history.q / (1 - history.w); }
  static double fall_noise_of(const History& history) { return history.w == 1 ? 0 : history.f / (1 - history.w); }

  // "mean = m / (1 - p)"
  static double mean_of(const History& history) { return history.m / (1 - history.p); }

  double fall_limit_of(const History& history) const;
  Signals pass_1_ratio(std::size_t unit, const std::optional<double>& norm);
  double centre_of(const std::vector<std::optional<double>>& norms, const std::vector<Signals>& signals) const;
  void pass_2_changes(std::size_t unit, double n, double centre, Signals& signals);
  void judge_change(History& history, double inverse, Signals& signals) const;
  bool is_common(const std::vector<std::optional<double>>& norms, const std::vector<Signals>& signals) const;
  void count_samples(const std::vector<Signals>& signals);
  void release(const std::vector<std::optional<double>>& norms, const std::optional<Review>& review,
               Decision& decision);
  std::vector<Candidate> candidates_by_norms(const Decision& decision, std::int64_t doubt) const;
  void admit(std::vector<Candidate> candidates, Decision& decision);
  void admit_standing(const Review& review, RiskKind kind, Decision& decision);
  bool replaces(std::size_t unit, double key, std::size_t other) const;
  void make_room(std::size_t candidate, bool coarse_ones_too, Decision& decision, std::vector<std::size_t>& ended);
  std::optional<std::size_t> lowest_key(RiskKind kind) const;
  void end_standing(std::size_t unit, Decision& decision);
  std::vector<std::size_t> units_in_recovery(bool with_coarse, bool with_filling) const;
  std::vector<std::size_t> units_in_recovery() const { return units_in_recovery(true, true); }
  void list_recoveries(Decision& decision) const;
  bool fits(std::size_t candidate, const std::vector<std::size_t>& recovered) const;
  void start_recovery(std::size_t unit, RiskKind kind);
  void start_standing(std::size_t unit, const Claim& claim);
  void fill_bucket();
  std::int64_t free_but_for(std::int64_t reruns, const std::vector<std::size_t>& without) const;
  bool cap_has_room(std::size_t unit, std::int64_t steps, const std::vector<std::size_t>& without) const;
  bool may_stand(std::size_t unit, const std::vector<std::size_t>& without) const;

  // "A standing recovery is one for the kind coarse or fill."
  static bool is_standing(const Recovery& recovery) {
    return is_for(recovery, RiskKind::coarse) || is_for(recovery, RiskKind::fill);
  }
  static bool is_for(const Recovery& recovery, RiskKind kind) {
    return recovery.in_recovery && recovery.admitted_for == kind;
  }

  std::vector<Unit> units_;
  Options options_;
  std::vector<History> histories_;
  std::vector<Recovery> recoveries_;
  std::int64_t max_units_ = 0;
  std::int64_t cost_limit_ = 0;
  // "State: a bucket"
  std::int64_t total_ = 0;        // T
  std::int64_t bucket_size_ = 0;  // M
  std::int64_t bucket_ = 0;
  std::int64_t decisions_ = 0;  // i
  std::int64_t to_come_ = 0;
  bool had_trial_ = false;
};

}  // namespace gnmr::naive

// SPDX-License-Identifier: Apache-2.0
#include "gnmr/lab/tune.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <exception>
#include <functional>
#include <limits>
#include <mutex>
#include <optional>
#include <thread>

#include "gnmr/core/controller.h"
#include "gnmr/lab/detection_score.h"

namespace gnmr::lab {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

double per(double part, double whole) { return whole > 0 ? part / whole : 0; }

double lower_median(std::vector<double> values) {
  if (values.empty()) return kNone;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// Risks over stretches of the run, whose number stays between 20 and 40 however long it is.
class Stretches {
 public:
  void add(std::uint64_t risks, std::uint64_t looked_at) {
    if (rows_in_last_ == 0) {
      if (stretches_.size() == kMost) halve();
      stretches_.emplace_back();
    }
    stretches_.back().risks += static_cast<double>(risks);
    stretches_.back().looked_at += static_cast<double>(looked_at);
    rows_in_last_ = (rows_in_last_ + 1) % width_;
  }

  /// The rate in all but the worst tenth of them.
  double calm_rate() const {
    std::vector<Stretch> sorted = stretches_;
    std::sort(sorted.begin(), sorted.end(),
              [](const Stretch& a, const Stretch& b) { return per(a.risks, a.looked_at) < per(b.risks, b.looked_at); });
    sorted.resize(sorted.size() - sorted.size() / 10);
    Stretch sum;
    for (const Stretch& stretch : sorted) {
      sum.risks += stretch.risks;
      sum.looked_at += stretch.looked_at;
    }
    return 1000 * per(sum.risks, sum.looked_at);
  }

 private:
  static constexpr std::size_t kMost = 40;
  struct Stretch {
    double risks = 0;
    double looked_at = 0;
  };

  void halve() {
    for (std::size_t i = 0; i < kMost / 2; ++i) {
      stretches_[i] = {stretches_[2 * i].risks + stretches_[2 * i + 1].risks,
                       stretches_[2 * i].looked_at + stretches_[2 * i + 1].looked_at};
    }
    stretches_.resize(kMost / 2);
    width_ *= 2;
  }

  std::vector<Stretch> stretches_;
  std::uint64_t width_ = 1;
  std::uint64_t rows_in_last_ = 0;
};

/// A unit's usual change, from its sum.
double usual_change(double sum, const UnitState& unit, const Options& options) {
  const double weight = 1 - std::pow(options.noise_beta, unit.changes);
  return weight > 0 ? sum / weight : 0;
}

/// The smallest norm, in means, that raises an alarm from the usual: by GNMR or by Delta-GNMR.
double smallest_rise(const UnitState& unit, const Options& options) {
  const double noise = usual_change(unit.rise_change_sum, unit, options);
  const double by_ratio = std::max(options.tau, 1 + options.noise_factor * noise);
  const double by_delta = 1 + std::max(options.delta_tau, options.noise_factor * noise);
  return std::min(by_ratio, by_delta);
}

/// How many times smaller than usual a norm must be to raise an alarm by Fall-GNMR.
double smallest_fall(const UnitState& unit, const Options& options) {
  const double noise = usual_change(unit.fall_change_sum, unit, options);
  return 1 + std::max(options.fall_tau, options.noise_factor * noise);
}

}  // namespace

double TuneScore::bluntness() const {
  double factor = 1;
  for (const double least : {sees_rise, sees_fall, sees_error}) {
    if (!std::isnan(least)) factor *= least;
  }
  return std::round(100 * std::log(std::max(factor, 1e-300)));
}

void TuneBlock::clear() {
  steps.clear();
  norms.clear();
  sampled.clear();
  evidence.clear();
  faulty.clear();
}

/// One candidate and what it has come to.
class Tuner::Replay {
 public:
  Replay(const std::vector<Unit>& units, const TuneCandidate& candidate, const TunerSettings& settings)
      : candidate_(candidate),
        controller_(units, candidate.options, {.can_hold = false, .expected_errors = {settings.expected_error}}) {
    if (settings.truth) detection_.emplace(units.size());
  }

  void add(const TuneBlock& block) {
    const std::size_t units = controller_.units().size();
    const auto row_of = [&](const auto& values, std::size_t row) {
      return std::span(values).subspan(row * units, units);
    };
    for (std::size_t row = 0; row < block.steps.size(); ++row) {
      StepReport report{
          .step = block.steps[row], .norms = NormSpan(row_of(block.norms, row)), .sampled = row_of(block.sampled, row)};
      if (candidate_.by_evidence()) report.errors = row_of(block.evidence, row);
      controller_.begin(report.step);
      const Outcome& outcome = controller_.report(report);
      if (candidate_.by_evidence()) {
        const auto measured =
            std::count_if(report.errors.begin(), report.errors.end(), [](double e) { return !std::isnan(e); });
        count(outcome.decision, outcome.findings.size(), static_cast<std::uint64_t>(measured));
      } else {
        count(outcome.decision, outcome.alarm.risks.size(), outcome.alarm.sampled);
      }
      if (detection_) detection_->add(row_of(block.faulty, row), outcome.decision);
    }
  }

  TuneResult result() const {
    TuneResult result{.candidate = candidate_, .score = score_};
    TuneScore& score = result.score;
    const auto units = static_cast<double>(controller_.units().size());
    score.risk_rate = 1000 * per(static_cast<double>(score.risks), static_cast<double>(score.looked_at));
    score.own_rate = 1000 * per(static_cast<double>(own_risks_), static_cast<double>(score.looked_at));
    score.calm_rate = stretches_.calm_rate();
    score.mean_share = per(static_cast<double>(recovered_), static_cast<double>(score.steps) * units);
    score.peak_share = per(static_cast<double>(most_recovered_), units);
    find_what_it_sees(score);
    if (!detection_) return result;
    score.faults = detection_->faults();
    score.recall = detection_->recall();
    score.precision = detection_->precision();
    score.delay = detection_->mean_delay();
    const double sum = score.recall + score.precision;
    score.f_score = sum > 0 ? 2 * score.recall * score.precision / sum : 0;  // NaN is not above 0
    return result;
  }

 private:
  void count(const Decision& decision, std::uint64_t risks, std::uint64_t looked_at) {
    ++score_.steps;
    score_.risks += risks;
    score_.looked_at += looked_at;
    const std::uint64_t own = decision.common ? 0 : risks;
    own_risks_ += own;
    stretches_.add(own, looked_at);
    score_.admissions += decision.admitted.size();
    score_.denials += decision.denied.size();
    score_.futile += decision.futile.size();
    recovered_ += decision.recovered.size();
    most_recovered_ = std::max<std::uint64_t>(most_recovered_, decision.recovered.size());
  }

  void find_what_it_sees(TuneScore& score) const {
    std::vector<double> rises, falls, errors;
    if (candidate_.by_evidence()) {
      for (UnitIndex unit = 0; unit < controller_.units().size(); ++unit) {
        const double limit = controller_.error_limit(unit, 0);
        if (!std::isnan(limit)) errors.push_back(limit);
      }
    } else {
      for (const UnitState& unit : controller_.save().units) {
        if (unit.samples == 0) continue;
        rises.push_back(smallest_rise(unit, candidate_.options));
        if (candidate_.options.fall_tau > 0) falls.push_back(smallest_fall(unit, candidate_.options));
      }
    }
    score.sees_rise = lower_median(std::move(rises));
    score.sees_fall = lower_median(std::move(falls));
    score.sees_error = lower_median(std::move(errors));
  }

  TuneCandidate candidate_;
  Controller controller_;
  TuneScore score_;
  Stretches stretches_;
  std::optional<DetectionScore> detection_;
  std::uint64_t own_risks_ = 0;
  std::uint64_t recovered_ = 0;
  std::uint64_t most_recovered_ = 0;
};

Tuner::Tuner(const std::vector<Unit>& units, const std::vector<TuneCandidate>& candidates,
             const TunerSettings& settings)
    : threads_(settings.threads > 0 ? settings.threads : std::max(1U, std::thread::hardware_concurrency())) {
  for (const TuneCandidate& candidate : candidates) {
    replays_.push_back(std::make_unique<Replay>(units, candidate, settings));
  }
}

Tuner::~Tuner() = default;

void Tuner::add(const TuneBlock& block) {
  if (block.steps.empty()) return;
  std::atomic<std::size_t> next = 0;
  std::mutex mutex;
  std::exception_ptr failure;
  const auto work = [&] {
    try {
      for (std::size_t i = next++; i < replays_.size(); i = next++) replays_[i]->add(block);
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!failure) failure = std::current_exception();
    }
  };
  std::vector<std::jthread> helpers;
  const std::size_t count = std::min<std::size_t>(threads_, replays_.size());
  for (std::size_t i = 1; i < count; ++i) helpers.emplace_back(work);
  work();
  helpers.clear();  // waits
  if (failure) std::rethrow_exception(failure);
}

std::vector<TuneResult> Tuner::results() const {
  std::vector<TuneResult> results;
  for (const auto& replay : replays_) results.push_back(replay->result());
  return results;
}

namespace {

/// What counts, each so that less is better; what is not defined is the worst.
std::vector<double> costs_of(const TuneScore& score, bool truth) {
  const auto or_worst = [](double value) {
    return std::isnan(value) ? std::numeric_limits<double>::infinity() : value;
  };
  if (truth) return {or_worst(-score.recall), or_worst(-score.precision), score.mean_share};
  return {score.bluntness(), score.own_rate, static_cast<double>(score.denials), score.mean_share};
}

bool beats(const std::vector<double>& a, const std::vector<double>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), std::less_equal<>()) && a != b;
}

}  // namespace

void mark_best(std::vector<TuneResult>& results, bool truth) {
  std::vector<std::vector<double>> costs;
  for (const TuneResult& result : results) costs.push_back(costs_of(result.score, truth));
  for (std::size_t i = 0; i < results.size(); ++i) {
    results[i].best = true;
    for (std::size_t j = 0; j < results.size() && results[i].best; ++j) {
      const bool same_family = results[i].candidate.by_evidence() == results[j].candidate.by_evidence();
      // Of equals the one that changes least stays, so that the table is not full of what makes no difference.
      const bool equal_and_nearer =
          costs[i] == costs[j] && (results[j].candidate.changes < results[i].candidate.changes ||
                                   (results[j].candidate.changes == results[i].candidate.changes && j < i));
      if (same_family && (beats(costs[j], costs[i]) || equal_and_nearer)) results[i].best = false;
    }
  }
}

}  // namespace gnmr::lab

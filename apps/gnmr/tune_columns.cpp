// SPDX-License-Identifier: Apache-2.0
#include "gnmr/tune_columns.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace gnmr::app {
namespace {

std::string number(double value) { return std::isnan(value) ? std::string("-") : fmt::format("{:.3g}", value); }

std::string share_text(double share) {
  return std::isnan(share) ? std::string("-") : fmt::format("{:.2f}%", 100 * share);
}

/// Puts the columns together. Titles are short, since a terminal is narrow; the help says what they are.
class ColumnList {
 public:
  explicit ColumnList(const TuneOutcome& outcome) : outcome_(outcome), results_(outcome.results) {
    evidence_ = std::any_of(results_.begin(), results_.end(),
                            [](const lab::TuneResult& result) { return result.candidate.by_evidence(); });
    add_marks();
    add_options();
    add_counts();
    add_what_is_seen();
    if (outcome.rule.truth) add_truth();
  }

  std::vector<TuneColumn> columns() && { return std::move(columns_); }

 private:
  using Text = std::function<std::string(const lab::TuneResult&)>;

  void add(const char* title, const std::string& help, const Text& text, bool is_number = true) {
    columns_.push_back(
        {.title = title, .is_number = is_number, .help = help, .cell = [&results = results_, text](std::size_t row) {
           return text(results[row]);
         }});
  }

  /// An option; what a selector does not look at is a dash.
  template <typename Value>
  void add_option(const char* title, const char* help, Value Options::*option, bool of_evidence) {
    add(title, help, [option, of_evidence](const lab::TuneResult& result) {
      if (result.candidate.by_evidence() != of_evidence) return std::string("-");
      return number(static_cast<double>(result.candidate.options.*option));
    });
  }

  void add_score(const char* title, const char* help, double lab::TuneScore::*score) {
    add(title, help, [score](const lab::TuneResult& result) { return number(result.score.*score); });
  }

  void add_share(const char* title, const char* help, double lab::TuneScore::*share) {
    add(title, help, [share](const lab::TuneResult& result) { return share_text(result.score.*share); });
  }

  void add_count(const char* title, const char* help, std::uint64_t lab::TuneScore::*count) {
    add(title, help, [count](const lab::TuneResult& result) { return std::to_string(result.score.*count); });
  }

  void add_marks() {
    columns_.push_back({.title = "",
                        .is_number = false,
                        .help = "> chosen, = as given, * best",
                        .cell = [&outcome = outcome_](std::size_t row) {
                          const lab::TuneResult& result = outcome.results[row];
                          return fmt::format("{}{}{}", is_chosen(outcome, row) ? ">" : "", is_given(result) ? "=" : "",
                                             result.best ? "*" : "");
                        }});
  }

  void add_options() {
    if (evidence_) {
      const auto selector = [](const lab::TuneResult& result) {
        return std::string(result.candidate.by_evidence() ? "evidence" : "norms");
      };
      add("selector", "who asks for recovery", selector, false);
    }
    add_option("tau", "GNMR above this is a risk", &Options::tau, false);
    add_option("delta", "delta_tau: Delta-GNMR above this is a risk", &Options::delta_tau, false);
    add_option("fall", "fall_tau: Fall-GNMR above this is a risk", &Options::fall_tau, false);
    add_option("noise", "noise_factor: thresholds are at least this many usual changes", &Options::noise_factor, false);
    if (evidence_) {
      add_option("error", "error_factor: an error above this many times the usual is an outlier",
                 &Options::error_factor, true);
      add_option("ceiling", "error_ceiling: an error above this many times the format's own is an outlier",
                 &Options::error_ceiling, true);
    }
    add("lock", "lock_steps: steps that a recovery lasts",
        [](const lab::TuneResult& result) { return std::to_string(result.candidate.options.lock_steps); });
    add("max_o", "units in recovery at one time: a share below 1, else a number",
        [](const lab::TuneResult& result) { return number(result.candidate.options.max_o); });
  }

  void add_counts() {
    add_score("risks/1000", "risks per thousand unit-steps", &lab::TuneScore::risk_rate);
    add_score("own", "risks outside common steps, per thousand unit-steps", &lab::TuneScore::own_rate);
    if (!outcome_.rule.truth && !outcome_.rule.healthy) {
      add_score("calm", "own, in the calmest nine tenths of the run", &lab::TuneScore::calm_rate);
    }
    add_count("recoveries", "admissions", &lab::TuneScore::admissions);
    add_count("denials", "for want of budget", &lab::TuneScore::denials);
    add_count("futile", "released as bad as before; a recorded run does not answer to recovery",
              &lab::TuneScore::futile);
    add_share("share", "of the units in recovery, mean over steps", &lab::TuneScore::mean_share);
    add_share("peak", "largest share in recovery", &lab::TuneScore::peak_share);
  }

  void add_what_is_seen() {
    add_score("sees rise", "of the median unit: the smallest norm that is seen, in means", &lab::TuneScore::sees_rise);
    add_score("sees fall", "of the median unit: how many times smaller than usual a norm must be to be seen",
              &lab::TuneScore::sees_fall);
    if (evidence_) {
      add_score("sees error", "of the median unit: the smallest error that is seen", &lab::TuneScore::sees_error);
    }
  }

  void add_truth() {
    add_share("recall", "faults that were found", &lab::TuneScore::recall);
    add_share("precision", "admissions that fall into a fault", &lab::TuneScore::precision);
    add_score("F", "2 P R / (P + R)", &lab::TuneScore::f_score);
    add_score("delay", "mean, in steps", &lab::TuneScore::delay);
  }

  const TuneOutcome& outcome_;
  const std::vector<lab::TuneResult>& results_;
  bool evidence_ = false;
  std::vector<TuneColumn> columns_;
};

}  // namespace

bool is_chosen(const TuneOutcome& outcome, std::size_t index) {
  const auto took = [&](const std::optional<lab::FamilyChoice>& choice) { return choice && choice->result == index; };
  return took(outcome.choice.norms) || took(outcome.choice.evidence);
}

bool is_given(const lab::TuneResult& result) { return result.candidate.changes == 0; }

std::vector<TuneColumn> tune_columns(const TuneOutcome& outcome) { return ColumnList(outcome).columns(); }

}  // namespace gnmr::app

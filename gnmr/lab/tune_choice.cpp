// SPDX-License-Identifier: Apache-2.0
#include "gnmr/lab/tune_choice.h"

#include <fmt/format.h>

#include <cmath>
#include <tuple>

#include "gnmr/core/message_text.h"

namespace gnmr::lab {
namespace {

double judged_rate(const TuneScore& score, const TuneRule& rule) {
  return rule.healthy ? score.own_rate : score.calm_rate;
}

std::string seen_text(const TuneScore& score) {
  if (!std::isnan(score.sees_error)) return fmt::format("from an error of {:.3g} on", score.sees_error);
  std::string text = fmt::format("from {:.3g} times its mean on", score.sees_rise);
  if (!std::isnan(score.sees_fall)) text += fmt::format(", or {:.3g} times below the others", score.sees_fall);
  return text;
}

/// The index of the least in `indices` by `key`; the first of equals.
template <typename Key>
std::size_t least(const std::vector<std::size_t>& indices, Key key) {
  std::size_t best = indices.front();
  for (const std::size_t index : indices) {
    if (key(index) < key(best)) best = index;
  }
  return best;
}

FamilyChoice choose_by_truth(const std::vector<TuneResult>& results, const std::vector<std::size_t>& family) {
  const std::size_t best = least(family, [&](std::size_t i) {
    const TuneScore& score = results[i].score;
    return std::tuple(-score.f_score, score.admissions, score.mean_share, results[i].candidate.changes);
  });
  const TuneScore& score = results[best].score;
  return {best, fmt::format("the highest F-score of {}: {:.3f} (recall {:.1f}%, precision {:.1f}%), with the "
                            "fewest recoveries of those that reach it ({})",
                            counted(family.size(), "replay"), score.f_score, 100 * score.recall,
                            std::isnan(score.precision) ? 0.0 : 100 * score.precision, score.admissions)};
}

FamilyChoice choose_by_rate(const std::vector<TuneResult>& results, const std::vector<std::size_t>& family,
                            const Options& base, const TuneRule& rule) {
  std::vector<std::size_t> candidates;
  std::vector<std::size_t> within;
  for (const std::size_t i : family) {
    const Options& options = results[i].candidate.options;
    if (options.lock_steps != base.lock_steps || options.max_o != base.max_o) continue;
    candidates.push_back(i);
    if (judged_rate(results[i].score, rule) <= rule.rate) within.push_back(i);
  }
  const char* const where = rule.healthy ? "a run that was healthy" : "the calmest nine tenths of the run";
  const auto rate = [&](std::size_t i) { return judged_rate(results[i].score, rule); };
  if (within.empty()) {
    const std::size_t best =
        least(candidates, [&](std::size_t i) { return std::tuple(rate(i), results[i].candidate.changes); });
    return {best, fmt::format("none of {} stays within {} risks per thousand unit-steps in {}; this one has the "
                              "fewest, {:.3g}",
                              counted(candidates.size(), "replay"), rule.rate, where, rate(best))};
  }
  const std::size_t best = least(within, [&](std::size_t i) {
    return std::tuple(results[i].score.bluntness(), rate(i), results[i].candidate.changes);
  });
  return {best, fmt::format("the most sensitive of {} whose risks stay within {} per thousand unit-steps in {}: "
                            "{:.3g}; the median unit is seen {}",
                            counted(candidates.size(), "replay"), rule.rate, where, rate(best),
                            seen_text(results[best].score))};
}

std::optional<FamilyChoice> choose_family(const std::vector<TuneResult>& results, bool by_evidence, const Options& base,
                                          const TuneRule& rule) {
  std::vector<std::size_t> family;
  std::uint64_t faults = 0;
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (results[i].candidate.by_evidence() != by_evidence) continue;
    family.push_back(i);
    faults = results[i].score.faults;
  }
  if (family.empty()) return std::nullopt;
  if (rule.truth && faults > 0) return choose_by_truth(results, family);
  TuneRule without = rule;
  if (rule.truth) without.healthy = true;  // truth without a fault says that the run was healthy
  return choose_by_rate(results, family, base, without);
}

}  // namespace

TuneChoice choose_options(const std::vector<TuneResult>& results, const Options& base, const TuneRule& rule) {
  TuneChoice choice{.norms = choose_family(results, false, base, rule),
                    .evidence = choose_family(results, true, base, rule),
                    .options = base};
  if (choice.norms) {
    const Options& from = results[choice.norms->result].candidate.options;
    choice.options.tau = from.tau;
    choice.options.delta_tau = from.delta_tau;
    choice.options.fall_tau = from.fall_tau;
    choice.options.noise_factor = from.noise_factor;
    choice.options.lock_steps = from.lock_steps;
    choice.options.max_o = from.max_o;
  }
  if (choice.evidence) {
    const Options& from = results[choice.evidence->result].candidate.options;
    choice.options.error_factor = from.error_factor;
    choice.options.error_ceiling = from.error_ceiling;
    if (base.selector != Selector::norms) {
      choice.options.lock_steps = from.lock_steps;
      choice.options.max_o = from.max_o;
    }
  }
  return choice;
}

}  // namespace gnmr::lab

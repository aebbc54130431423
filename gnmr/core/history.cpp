// SPDX-License-Identifier: Apache-2.0
#include "gnmr/core/history.h"

#include <algorithm>
#include <cassert>
#include <limits>
#include <utility>

#include "gnmr/core/gate_rule.h"
#include "gnmr/core/signal_rules.h"

namespace gnmr {
namespace {

constexpr double kUndefined = std::numeric_limits<double>::quiet_NaN();

// Counts beyond this are as good as this: every limit that a count is compared with is below it.
constexpr std::uint32_t kCountCap = std::uint32_t{1} << 31;

// Eight columns, spread over the 64 lines of a page.
constexpr std::size_t kColumnStaggerLines = 7;

// From about here on the columns no longer fit a large cache, and reading a ratio back costs more than dividing again.
constexpr std::size_t kFarUnits = std::size_t{1} << 18;

constexpr std::size_t kNoUnit = std::numeric_limits<std::size_t>::max();

std::size_t padded_size(std::size_t units) { return (units + kBlockUnits - 1) / kBlockUnits * kBlockUnits; }

}  // namespace

History::History(std::size_t units, const Options& options, const SignalKernels* kernels)
    : rules_(signal_rules(options)),
      kernels_(kernels != nullptr ? kernels : available_signal_kernels().kernels[0]),
      units_(units),
      padded_(padded_size(units)),
      kept_(padded_, static_cast<std::size_t>(options.window)),
      absences_(padded_, Absences{}),
      noise_weights_(options.noise_beta),
      stages_(padded_ / kBlockUnits, units / kBlockUnits),
      zero_muted_(padded_, 0),
      exceptions_(padded_),
      columns_(columns()) {
  std::size_t lead_lines = 0;
  const auto column = [this, &lead_lines](double value) {
    lead_lines += kColumnStaggerLines;
    return AlignedArray<double>(padded_, value, lead_lines);
  };
  for (MemoryColumns& memory : memory_) {
    memory.mean_sum = column(0.0);
    memory.mean_weight = column(1.0);
    memory.rise_change_sum = column(0.0);
    memory.fall_change_sum = column(0.0);
  }
  noise_weights_.reserve();
  muted_units_.reserve(units_);
}

SignalColumns History::columns() {
  return {
      .rules = rules_,
      .units = units_,
      .far = units_ >= kFarUnits,
      .memory = {},
      .next = {},
      .kept = kept_.at(0, 0),
      .slots = kept_.slots(),
      .new_slot = 0,
      .oldest_slot = 0,
      .rows = 0,
      .absences = absences_.data(),
      .stages = stages_.data(),
      .zero_muted = zero_muted_.data(),
      .noise_weights = &noise_weights_,
      .noise_reciprocal = 0,
      .out = exceptions_.arrays(),
  };
}

/// What of the columns differs from step to step.
void History::move_columns() {
  MemoryColumns& now = memory_[current_];
  MemoryColumns& next = memory_[1 - current_];
  columns_.memory = {now.mean_sum.data(), now.mean_weight.data(), now.rise_change_sum.data(),
                     now.fall_change_sum.data()};
  columns_.next = {next.mean_sum.data(), next.mean_weight.data(), next.rise_change_sum.data(),
                   next.fall_change_sum.data()};
  columns_.new_slot = kept_.new_slot();
  columns_.oldest_slot = kept_.oldest_slot();
  columns_.rows = rows_;
  columns_.noise_reciprocal = noise_weights_.reciprocal(rows_);
}

bool History::is_warm_block(std::size_t block) const {
  const auto is_warm = [this](const Absences& absences) { return rows_ - absences.uncounted >= rules_.warmup_samples; };
  const Absences* const first = absences_.data() + block * kBlockUnits;
  return std::all_of(first, first + kBlockUnits, is_warm);
}

bool History::is_settled_block(std::size_t block) const {
  const double* const first = memory_[current_].mean_weight.data() + block * kBlockUnits;
  return std::all_of(first, first + kBlockUnits, [](double weight) { return weight == 0; });
}

void History::advance_stages() {
  // From where a block is settled on nobody writes the weights of its means.
  const auto settle = [this](std::size_t block) {
    std::fill_n(memory_[1 - current_].mean_weight.data() + block * kBlockUnits, kBlockUnits, 0.0);
  };
  stages_.advance(
      rows_, [this](std::size_t block) { return is_warm_block(block); },
      [this](std::size_t block) { return is_settled_block(block); }, settle);
}

void History::run_passes(const Observation& observation, SignalTotals& totals) const {
  const bool is_float = observation.norms.is_float();
  const std::size_t whole = units_ / kBlockUnits * kBlockUnits;
  const std::uint8_t* const sampled = observation.sampled.empty() ? nullptr : observation.sampled.data();
  const void* const norms = is_float ? static_cast<const void*>(observation.norms.floats())
                                     : static_cast<const void*>(observation.norms.doubles());

  // The last block may reach beyond the caller's arrays. What is no unit counts as sampled there, and is left out as
  // an exception that does not exist.
  double last_norms[kBlockUnits] = {};
  std::uint8_t last_sampled[kBlockUnits];
  std::fill_n(last_sampled, kBlockUnits, std::uint8_t{1});
  for (std::size_t unit = whole; unit < units_; ++unit) {
    last_norms[unit - whole] = observation.norms[unit];
    last_sampled[unit - whole] = sampled == nullptr || sampled[unit] != 0 ? 1 : 0;
  }
  const SignalRange blocks{.norms = norms, .sampled = sampled, .first = 0, .last = whole};
  const SignalRange rest{.norms = last_norms, .sampled = last_sampled, .first = whole, .last = padded_};
  const bool has_rest = whole < padded_;

  (is_float ? kernels_->ratios_f32 : kernels_->ratios_f64)(columns_, blocks, totals);
  if (has_rest) kernels_->ratios_f64(columns_, rest, totals);
  if (totals.negative_unit != kNoUnit) return;
  if (totals.centre_count > 0) {
    totals.centre =
        static_cast<double>(totals.centre_sum) / static_cast<double>((std::uint64_t{1} << 20) * totals.centre_count);
  }
  (is_float ? kernels_->changes_f32 : kernels_->changes_f64)(columns_, blocks, totals);
  if (has_rest) kernels_->changes_f64(columns_, rest, totals);
}

const History::Findings& History::observe(const Observation& observation) {
  exceptions_.clear();
  observed_ = false;
  committed_ = false;
  advance_stages();
  move_columns();
  SignalTotals totals;
  run_passes(observation, totals);
  if (totals.negative_unit != kNoUnit) {
    findings_ = {};
    findings_.negative_unit = totals.negative_unit;
    return findings_;
  }
  collect(totals);
  kept_.see_step();
  observed_ = true;
  return findings_;
}

void History::collect(const SignalTotals& totals) {
  exceptions_.take(totals);
  const std::size_t sampled = units_ - totals.unsampled;
  findings_ = {
      .risks = exceptions_.risks(),
      .records = exceptions_.records(),
      .sampled = static_cast<std::uint32_t>(sampled),
      .finite = static_cast<std::uint32_t>(sampled - totals.non_finite),
      .finite_risks = static_cast<std::uint32_t>(totals.risks - totals.non_finite),
      .centre = totals.centre,
  };
}

void History::discard_observation() {
  exceptions_.clear();
  findings_ = {};
  observed_ = false;
  committed_ = false;
}

void History::commit() {
  assert(observed_ && !committed_);
  kept_.turn(units_, exceptions_);
  const std::span<const UnitIndex> unsampled = exceptions_.unsampled();
  for (std::size_t i = 0; i < unsampled.size(); ++i) {
    if (i + kPrefetchUnits < unsampled.size()) __builtin_prefetch(&absences_[unsampled[i + kPrefetchUnits]], 1);
    Absences& absences = absences_[unsampled[i]];
    ++absences.uncounted;
    ++absences.unlearned;
    ++absences.unsampled;
  }
  for (const UnitIndex unit : exceptions_.others()) {
    Absences& absences = absences_[unit];
    absences.uncounted += exceptions_.has(unit, status::kNotCounted) ? 1U : 0U;
    absences.unlearned += exceptions_.has(unit, status::kNotLearned) ? 1U : 0U;
  }
  std::erase_if(muted_units_, [this](UnitIndex unit) {
    const bool lifted = !exceptions_.has(unit, status::kNotCounted);
    if (lifted) zero_muted_[unit] = 0;
    return lifted;
  });
  current_ = 1 - current_;
  ++rows_;
  noise_weights_.extend_to(rows_);
  if (rows_ >= kCountCap + kCountCap / 2) forget_excess_counts();
  committed_ = true;
}

void History::forget_excess_counts() {
  const std::uint32_t excess = rows_ - kCountCap;
  const auto rebased = [this, excess](std::uint32_t missing) {
    return rows_ - excess - std::min(rows_ - missing, kCountCap);
  };
  for (std::size_t unit = 0; unit < padded_; ++unit) {
    Absences& absences = absences_[unit];
    absences.uncounted = rebased(absences.uncounted);
    absences.unlearned = rebased(absences.unlearned);
    absences.unsampled -= excess;  // only differences count
  }
  rows_ -= excess;
}

double History::noise_complement_before(UnitIndex unit) const {
  const bool taken = committed_ && !exceptions_.has(unit, status::kNotLearned);
  return noise_weights_.complement(rows_ - absences_[unit].unlearned - (taken ? 1 : 0));
}

Signals History::signals(UnitIndex unit) const {
  Signals result{.ratio = kUndefined, .delta = kUndefined, .fall = kUndefined, .severity = kUndefined};
  if (!saw_sample(unit)) return result;
  result.sampled = true;
  result.risk = risk(unit);
  if (result.risk != RiskKind::none) {
    const auto found = std::lower_bound(findings_.risks.begin(), findings_.risks.end(), unit);
    const RiskRecord& record = findings_.records[static_cast<std::size_t>(found - findings_.risks.begin())];
    result.ratio = record.ratio;
    result.delta = record.delta;
    result.fall = record.fall;
    result.severity = record.severity;
    return result;
  }
  result.ratio = kept_.seen_ratio(unit)[0];
  result.severity = 0;
  if (exceptions_.has(unit, status::kFirst)) return result;

  const MemoryColumns& memory = memory_[committed_ ? 1 - current_ : current_];
  const double* const oldest = kept_.seen_oldest(unit);
  // Neither the norm nor warmth matters to the signals of a unit that is not at risk.
  const unit_math::Outcome outcome = unit_math::outcome_of(
      rules_,
      {memory.mean_sum[unit], memory.mean_weight[unit], memory.rise_change_sum[unit], memory.fall_change_sum[unit]},
      {oldest[0], oldest[kBlockUnits]},
      {.norm = 1.0, .samples = 1, .noise_complement = noise_complement_before(unit), .ratio = result.ratio},
      findings_.centre);
  result.delta = outcome.delta;
  result.fall = outcome.fall;
  result.severity = outcome.severity;
  return result;
}

double History::mean(UnitIndex unit) const {
  const MemoryColumns& memory = memory_[current_];
  return unit_math::mean_of(memory.mean_sum[unit], unit_math::complement_of(memory.mean_weight[unit]));
}

void History::mute_zero(UnitIndex unit) {
  if (zero_muted_[unit] != 0) return;
  zero_muted_[unit] = 1;
  muted_units_.push_back(unit);
}

void History::save_unit(UnitIndex unit, UnitState& state) const {
  const MemoryColumns& memory = memory_[current_];
  state.samples = std::min(rows_ - absences_[unit].uncounted, kCountCap);
  state.changes = std::min(rows_ - absences_[unit].unlearned, kCountCap);
  state.mean_sum = memory.mean_sum[unit];
  state.rise_change_sum = memory.rise_change_sum[unit];
  state.fall_change_sum = memory.fall_change_sum[unit];
  state.zero_muted = zero_muted_[unit] != 0;
  state.ratios.clear();
  state.inverses.clear();
  for (std::size_t from = kept_.oldest_slot(); from != kept_.new_slot(); from = kept_.next_slot(from)) {
    const double* const values = kept_.at(unit, from);
    state.ratios.push_back(values[0]);
    state.inverses.push_back(values[kBlockUnits]);
  }
}

void History::set_zero_muted(std::span<const std::uint8_t> gate_flags) {
  for (std::size_t unit = 0; unit < units_; ++unit) zero_muted_[unit] = gate_flags[unit] & gate_flag::kZeroMuted;
}

WeightTable History::start_from(std::span<const UnitState> saved) {
  assert(rows_ == 0);
  std::uint32_t most = 0;
  for (const UnitState& unit : saved) most = std::max({most, unit.samples, unit.changes});
  WeightTable mean_weights(rules_.beta);
  mean_weights.extend_to(most);
  rows_ = std::min(most, kCountCap);
  std::fill_n(absences_.data(), padded_, Absences{.uncounted = rows_, .unlearned = rows_, .unsampled = 0, .unused = 0});
  noise_weights_.extend_to(rows_);
  return mean_weights;
}

void History::restore_unit(UnitIndex unit, const UnitState& state, Keep keep, const WeightTable& mean_weights) {
  MemoryColumns& memory = memory_[current_];
  if (keep.changes) {
    memory.rise_change_sum[unit] = state.rise_change_sum;
    memory.fall_change_sum[unit] = state.fall_change_sum;
    absences_[unit].unlearned = rows_ - std::min(state.changes, kCountCap);
  }
  if (state.zero_muted) mute_zero(unit);
  if (!keep.means) return;
  memory.mean_sum[unit] = state.mean_sum;
  memory.mean_weight[unit] = mean_weights.weight(state.samples);
  absences_[unit].uncounted = rows_ - std::min(state.samples, kCountCap);
  if (state.ratios.empty()) return;
  // From the newest back; the oldest stands for all that are missing.
  std::size_t index = state.ratios.size();
  std::size_t to = kept_.new_slot();
  for (std::size_t age = 0; age + 1 < kept_.slots(); ++age) {
    if (index > 0) --index;
    to = kept_.previous_slot(to);
    kept_.at(unit, to)[0] = state.ratios[index];
    kept_.at(unit, to)[kBlockUnits] = state.inverses[index];
  }
}

}  // namespace gnmr

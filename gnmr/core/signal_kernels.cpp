// SPDX-License-Identifier: Apache-2.0
#include "gnmr/core/signal_kernels.h"

#include <algorithm>
#include <limits>

#include "gnmr/core/types.h"
#include "gnmr/core/weight_table.h"

namespace gnmr {

extern const SignalKernels kBaselineSignalKernels;
#if defined(GNMR_HAVE_AVX2_KERNELS)
extern const SignalKernels kAvx2SignalKernels;
extern const SignalKernels kAvx512SignalKernels;
#endif

namespace {

constexpr double kUndefined = std::numeric_limits<double>::quiet_NaN();

bool is_finite_norm(double norm) { return norm <= std::numeric_limits<double>::max(); }

std::uint32_t sample_count(const SignalColumns& columns, std::size_t unit) {
  return columns.rows - columns.absences[unit].uncounted;
}

double noise_complement(const SignalColumns& columns, std::size_t unit) {
  return columns.noise_weights->complement(columns.rows - columns.absences[unit].unlearned);
}

bool is_gone(const SignalColumns& columns, std::size_t unit) {
  return columns.rules.fall_on && sample_count(columns, unit) >= columns.rules.warmup_samples &&
         columns.zero_muted[unit] == 0;
}

void add_risk(const SignalColumns& columns, std::size_t unit, const RiskRecord& record, SignalTotals& totals) {
  columns.out.risks[totals.risks] = static_cast<std::uint32_t>(unit);
  columns.out.risk_records[totals.risks] = record;
  ++totals.risks;
}

std::uint8_t risk_bits(RiskKind kind) {
  return static_cast<std::uint8_t>(static_cast<unsigned>(kind) << status::kRiskShift);
}

/// A zero, a NaN or an infinity: no memory changes.
std::uint8_t status_without_norm(const SignalColumns& columns, std::size_t unit, double norm, SignalTotals& totals) {
  if (norm == 0) {
    if (!is_gone(columns, unit)) return status::kAbsent;
    const double severity = unit_math::severity_of_zero(columns.rules, columns.memory.fall_change_sum[unit],
                                                        noise_complement(columns, unit));
    add_risk(columns, unit, {kUndefined, kUndefined, kUndefined, severity}, totals);
    return static_cast<std::uint8_t>(status::kUnchanged | status::kZero | risk_bits(RiskKind::fall));
  }
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  add_risk(columns, unit, {kInfinity, kUndefined, kUndefined, kInfinity}, totals);
  ++totals.non_finite;
  return static_cast<std::uint8_t>(status::kUnchanged | risk_bits(RiskKind::non_finite));
}

double ratio_of_unit(const SignalColumns& columns, std::size_t unit, double norm) {
  const double complement = unit_math::complement_of(columns.memory.mean_weight[unit]);
  return unit_math::ratio_of(norm, unit_math::mean_of(columns.memory.mean_sum[unit], complement));
}

/// A finite norm that is not 0: the full arithmetic.
std::uint8_t status_with_norm(const SignalColumns& columns, std::size_t unit, double norm, SignalTotals& totals) {
  const std::uint32_t samples = sample_count(columns, unit);
  double* const new_kept = columns.kept_at(unit, columns.new_slot);
  const double* const oldest = columns.kept_at(unit, columns.oldest_slot);
  const unit_math::Memory<double> memory{columns.memory.mean_sum[unit], columns.memory.mean_weight[unit],
                                         columns.memory.rise_change_sum[unit], columns.memory.fall_change_sum[unit]};
  const unit_math::Outcome outcome = unit_math::outcome_of(columns.rules, memory, {oldest[0], oldest[kBlockUnits]},
                                                           {.norm = norm,
                                                            .samples = samples,
                                                            .noise_complement = noise_complement(columns, unit),
                                                            .ratio = ratio_of_unit(columns, unit, norm)},
                                                           totals.centre);
  new_kept[0] = outcome.ratio;
  new_kept[kBlockUnits] = outcome.inverse;
  columns.next.mean_sum[unit] = outcome.next.mean_sum;
  columns.next.mean_weight[unit] = outcome.next.mean_weight;
  columns.next.rise_change_sum[unit] = outcome.next.rise_change_sum;
  columns.next.fall_change_sum[unit] = outcome.next.fall_change_sum;

  unsigned bits = outcome.learned ? 0 : status::kNotLearned;
  if (samples == 0) bits |= status::kFirst;
  if (outcome.at_risk) {
    add_risk(columns, unit, {outcome.ratio, outcome.delta, outcome.fall, outcome.severity}, totals);
    bits |= risk_bits(outcome.by_fall ? RiskKind::fall : RiskKind::rise);
    if (columns.rules.cap_on) bits |= status::kNotKept;
  }
  return static_cast<std::uint8_t>(bits);
}

}  // namespace

void ratio_of_exception(const SignalColumns& columns, std::size_t unit, double norm, SignalTotals& totals) {
  if (norm < 0) {
    totals.negative_unit = std::min(totals.negative_unit, unit);
    return;
  }
  if (norm == 0 || !is_finite_norm(norm)) return;
  if (sample_count(columns, unit) == 0) return;
  totals.centre_sum += static_cast<std::uint64_t>(unit_math::centre_share(ratio_of_unit(columns, unit, norm)));
  ++totals.centre_count;
}

void change_of_exception(const SignalColumns& columns, std::size_t unit, double norm, SignalTotals& totals) {
  const std::uint8_t bits = norm == 0 || !is_finite_norm(norm) ? status_without_norm(columns, unit, norm, totals)
                                                               : status_with_norm(columns, unit, norm, totals);
  columns.out.status[unit] = bits;
  if (bits == status::kAbsent) {
    columns.out.unsampled[totals.unsampled++] = static_cast<std::uint32_t>(unit);
    return;
  }
  columns.out.others[totals.exceptions++] = static_cast<std::uint32_t>(unit);
  if ((bits & status::kNotKept) != 0) ++totals.not_kept;
}

SignalKernelList available_signal_kernels() {
  SignalKernelList list{};
#if defined(GNMR_HAVE_AVX2_KERNELS)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512bw")) {
    list.kernels[list.count++] = &kAvx512SignalKernels;
  }
  if (__builtin_cpu_supports("avx2")) list.kernels[list.count++] = &kAvx2SignalKernels;
#endif
  list.kernels[list.count++] = &kBaselineSignalKernels;
  return list;
}

}  // namespace gnmr

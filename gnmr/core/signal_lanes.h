// SPDX-License-Identifier: Apache-2.0
// The lane code of both passes, for GNMR_LANES units at a time. Included once by each signal_kernels_*.cpp.
//
// Everything is in an unnamed namespace or always inlined: see signal_kernels.h. Units in blocks that are warm go by
// lanes, as long as they are plainly usual or have no sample; `plain` masks the lanes that are.
#pragma once

#include "gnmr/core/lanes.h"
#include "gnmr/core/signal_kernels.h"

namespace gnmr {
namespace {

/// What the lanes of one group of units read and write, as local pointers that the compiler can keep in registers.
template <class Norm>
struct LaneCursor {
  const Norm* norms;
  const std::uint8_t* sampled;
  double* new_kept;
  const double* oldest;
  std::size_t unit;
};

template <class Norm>
LaneCursor<Norm> cursor_at(const SignalColumns& columns, const SignalRange& range) {
  return {static_cast<const Norm*>(range.norms), range.sampled, columns.kept_at(range.first, columns.new_slot),
          columns.kept_at(range.first, columns.oldest_slot), range.first};
}

template <class Norm>
GNMR_UNIT_MATH void advance(LaneCursor<Norm>& at, std::size_t slots, bool masked) {
  at.norms += kBlockUnits;
  if (masked) at.sampled += kBlockUnits;
  at.new_kept += slots * 2 * kBlockUnits;
  at.oldest += slots * 2 * kBlockUnits;
  at.unit += kBlockUnits;
}

/// Kept values stand a ring apart from block to block, which the machine does not foresee; this many blocks ahead
/// they are asked for. (Measured with 44,544 units: 2.11 ns a unit without, 1.90 at 4, 1.85 at 16 and at 32.)
constexpr std::size_t kPrefetchBlocks = 16;

GNMR_UNIT_MATH void prefetch_kept(const double* kept, std::size_t slots) {
  __builtin_prefetch(kept + kPrefetchBlocks * slots * 2 * kBlockUnits);
}

/// Means of the lanes; a settled block has nothing left to divide by.
GNMR_UNIT_MATH Reals mean_lanes(Stage stage, Reals mean_sum, const double* mean_weight) {
  return stage == Stage::settled ? mean_sum : unit_math::mean_of(mean_sum, 1.0 - load(mean_weight));
}

/// Pass 1, units one by one: those with a sample among `lanes`.
template <class Norm>
void ratios_one_by_one(const SignalColumns& columns, const LaneCursor<Norm>& at, std::size_t lane, unsigned lanes,
                       SignalTotals& totals) {
  for (unsigned rest = lanes; rest != 0; rest &= rest - 1) {
    const std::size_t unit = at.unit + lane + static_cast<std::size_t>(__builtin_ctz(rest));
    if (unit >= columns.units) return;
    ratio_of_exception(columns, unit, static_cast<double>(at.norms[unit - at.unit]), totals);
  }
}

/// Pass 2, units one by one, likewise.
template <class Norm>
void changes_one_by_one(const SignalColumns& columns, const LaneCursor<Norm>& at, std::size_t lane, unsigned lanes,
                        SignalTotals& totals) {
  for (unsigned rest = lanes; rest != 0; rest &= rest - 1) {
    const std::size_t unit = at.unit + lane + static_cast<std::size_t>(__builtin_ctz(rest));
    if (unit >= columns.units) return;
    change_of_exception(columns, unit, static_cast<double>(at.norms[unit - at.unit]), totals);
  }
}

template <bool kFar, bool kMasked, class Norm>
void ratio_pass(const SignalColumns& columns, const SignalRange& range, SignalTotals& totals) {
  LaneCursor<Norm> at = cursor_at<Norm>(columns, range);
  const unit_math::Rules rules = columns.rules;
  const Stage* const stages = columns.stages;
  const double* const mean_sums = columns.memory.mean_sum;
  const double* const mean_weights = columns.memory.mean_weight;
  const std::size_t slots = columns.slots;
  Reals centre_sum{};  // whole numbers below 2^53: exact
  Mask plain_count{};

  for (; at.unit < range.last; advance(at, slots, kMasked)) {
    const Stage stage = stages[at.unit / kBlockUnits];
    if constexpr (!kFar) prefetch_kept(at.new_kept, slots);
    for (std::size_t lane = 0; lane < kBlockUnits; lane += kLanes) {
      const std::size_t unit = at.unit + lane;
      const Mask sampled = kMasked ? load_sampled(at.sampled + lane) : all_lanes();
      if (stage == Stage::fresh) [[unlikely]] {
        ratios_one_by_one(columns, at, lane, bits_of(sampled), totals);
        continue;
      }
      const Reals mean = mean_lanes(stage, load(mean_sums + unit), mean_weights + unit);
      const Reals ratio = load_norms(at.norms + lane) / mean;
      if constexpr (!kFar) store(at.new_kept + lane, ratio);

      const Mask usual = (ratio >= rules.plain_low) & (ratio <= rules.plain_high);
      const unsigned odd = bits_of(kMasked ? sampled & ~usual : ~usual);
      if (odd != 0) [[unlikely]]
        ratios_one_by_one(columns, at, lane, odd, totals);
      Reals share = whole_part(unit_math::centre_share(ratio));
      // Lanes that are not plain hold anything; where all are there is nothing to clear.
      if (kMasked || odd != 0) {
        const Mask plain = usual & sampled;
        share = plain ? share : Reals{};
        plain_count -= plain;  // a lane's mask is -1
      } else {
        plain_count += 1;
      }
      centre_sum += share;
    }
  }
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    totals.centre_sum += static_cast<std::uint64_t>(centre_sum[lane]);
    totals.centre_count += static_cast<std::uint64_t>(plain_count[lane]);
  }
}

/// Which lanes a set of bits names, and the status bytes of lanes without a sample, by the bits.
struct AbsentLanes {
  std::uint32_t lanes[1U << kLanes][kLanes];
  std::uint8_t status[1U << kLanes][kLanes];
};

constexpr AbsentLanes make_absent_lanes() {
  AbsentLanes table{};
  for (unsigned bits = 0; bits < 1U << kLanes; ++bits) {
    std::size_t count = 0;
    for (std::uint32_t lane = 0; lane < kLanes; ++lane) {
      if (((bits >> lane) & 1U) == 0) continue;
      table.lanes[bits][count++] = lane;
      table.status[bits][lane] = status::kAbsent;
    }
  }
  return table;
}

constexpr AbsentLanes kAbsentLanes = make_absent_lanes();

/// Writes units without a sample into the list, without a branch: the list has room for a few more.
GNMR_UNIT_MATH void list_unsampled(const SignalColumns& columns, std::size_t unit, unsigned absent,
                                   std::size_t& count) {
  for (std::size_t i = 0; i < kLanes; ++i) {
    columns.out.unsampled[count + i] = static_cast<std::uint32_t>(unit) + kAbsentLanes.lanes[absent][i];
  }
  __builtin_memcpy(columns.out.status + unit, kAbsentLanes.status[absent], kLanes);
  count += static_cast<std::size_t>(__builtin_popcount(absent));
}

template <bool kFar, bool kMasked, class Norm>
void change_pass(const SignalColumns& columns, const SignalRange& range, SignalTotals& totals) {
  LaneCursor<Norm> at = cursor_at<Norm>(columns, range);
  const unit_math::Rules rules = columns.rules;
  const Stage* const stages = columns.stages;
  const unit_math::Memory<const double*> memory = columns.memory;
  const unit_math::Memory<double*> next = columns.next;
  const std::size_t slots = columns.slots;
  const Reals centre = unit_math::splat<Reals>(totals.centre);
  const double noise_reciprocal = columns.noise_reciprocal;
  std::size_t unsampled = totals.unsampled;

  for (; at.unit < range.last; advance(at, slots, kMasked)) {
    const Stage stage = stages[at.unit / kBlockUnits];
    prefetch_kept(at.new_kept, slots);
    prefetch_kept(at.oldest, slots);
    for (std::size_t lane = 0; lane < kBlockUnits; lane += kLanes) {
      const std::size_t unit = at.unit + lane;
      const Mask sampled = kMasked ? load_sampled(at.sampled + lane) : all_lanes();
      const Reals mean_sum = load(memory.mean_sum + unit);
      const Reals rise_sum = load(memory.rise_change_sum + unit);
      const Reals fall_sum = load(memory.fall_change_sum + unit);
      const Reals norm = load_norms(at.norms + lane);
      const Reals ratio =
          kFar ? norm / mean_lanes(stage, mean_sum, memory.mean_weight + unit) : load(at.new_kept + lane);
      const Reals inverse = unit_math::min_of(centre / ratio, unit_math::splat<Reals>(unit_math::kRatioCap));
      const Reals change = unit_math::abs_of(ratio - load(at.oldest + lane));
      Reals fall_change{};
      if (rules.fall_on) fall_change = unit_math::abs_of(inverse - load(at.oldest + kBlockUnits + lane));
      Mask plain = unit_math::plainly_usual(rules, rise_sum * noise_reciprocal, fall_sum * noise_reciprocal, ratio,
                                            change, fall_change);
      if constexpr (kMasked) plain &= sampled;
      if (stage == Stage::fresh) [[unlikely]]
        plain = Mask{};
      const unsigned plain_bits = bits_of(plain);

      Reals next_mean = unit_math::decayed(rules.beta, rules.one_minus_beta, mean_sum, norm);
      Reals next_rise = unit_math::decayed(rules.noise_beta, rules.one_minus_noise_beta, rise_sum, change);
      Reals next_fall = unit_math::decayed(rules.noise_beta, rules.one_minus_noise_beta, fall_sum, fall_change);
      if (kMasked || plain_bits != kAllLaneBits) {
        next_mean = plain ? next_mean : mean_sum;
        next_rise = plain ? next_rise : rise_sum;
        next_fall = plain ? next_fall : fall_sum;
      }
      if constexpr (kFar) store(at.new_kept + lane, ratio);
      store(at.new_kept + kBlockUnits + lane, inverse);
      store(next.mean_sum + unit, next_mean);
      store(next.rise_change_sum + unit, next_rise);
      store(next.fall_change_sum + unit, next_fall);
      if (stage != Stage::settled) {
        const Reals weight = load(memory.mean_weight + unit);
        store(next.mean_weight + unit, plain ? unit_math::next_weight(rules.beta, weight) : weight);
      }
      unsigned odd = kAllLaneBits & ~plain_bits;
      if constexpr (kMasked) {
        const unsigned absent = kAllLaneBits & ~bits_of(sampled);
        list_unsampled(columns, unit, absent, unsampled);
        odd &= ~absent;
      }
      if (odd != 0) [[unlikely]] {
        totals.unsampled = unsampled;
        changes_one_by_one(columns, at, lane, odd, totals);
        unsampled = totals.unsampled;
      }
    }
  }
  totals.unsampled = unsampled;
}

template <class Norm>
void ratios(const SignalColumns& columns, const SignalRange& range, SignalTotals& totals) {
  const bool masked = range.sampled != nullptr;
  if (columns.far) {
    (masked ? ratio_pass<true, true, Norm> : ratio_pass<true, false, Norm>)(columns, range, totals);
  } else {
    (masked ? ratio_pass<false, true, Norm> : ratio_pass<false, false, Norm>)(columns, range, totals);
  }
}

template <class Norm>
void changes(const SignalColumns& columns, const SignalRange& range, SignalTotals& totals) {
  const bool masked = range.sampled != nullptr;
  if (columns.far) {
    (masked ? change_pass<true, true, Norm> : change_pass<true, false, Norm>)(columns, range, totals);
  } else {
    (masked ? change_pass<false, true, Norm> : change_pass<false, false, Norm>)(columns, range, totals);
  }
}

}  // namespace
}  // namespace gnmr

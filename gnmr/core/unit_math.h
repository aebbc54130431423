// SPDX-License-Identifier: Apache-2.0
// The arithmetic of one unit in one step, in double precision: section "Signals" of docs/algorithm.md.
//
// Goals: the only place where a signal is computed. g++, clang and nvcc compile it; `Real` is double, or on the CPU a
// short vector of doubles (a GNU vector type), lane by lane the same operations. Every operation is rounded by itself:
// files that include this are compiled with -ffp-contract=off (nvcc: -fmad=false), never with -ffast-math.
// Non-goals: memory layout, lists, what is done about a risk.
//
// In the templates `condition ? a : b`, `&` and `|` stand for bool and for vector masks alike.
#pragma once

#if defined(__CUDACC__)
#define GNMR_UNIT_MATH __host__ __device__ __forceinline__
#else
#define GNMR_UNIT_MATH inline __attribute__((always_inline))
#endif

namespace gnmr::unit_math {

/// Ratios and inverses are at most this.
inline constexpr double kRatioCap = 1e30;

/// Weights below this become 0, so that none ends as a denormal.
inline constexpr double kWeightFloor = 0x1p-60;

/// Ratios enter the centre as whole multiples of 1 / kCentreScale, at most kCentreCap.
inline constexpr double kCentreScale = 0x1p20;
inline constexpr double kCentreCap = 2.0;

/// The options that signals depend on, and what follows from them alone.
struct Rules {
  double beta;
  double one_minus_beta;
  double tau;
  double delta_tau;
  double fall_tau;
  double baseline;
  double noise_factor;
  double noise_beta;
  double one_minus_noise_beta;
  double mean_cap;
  bool fall_on;  // fall_tau > 0
  bool cap_on;   // mean_cap > 0
  unsigned warmup_samples;
  // A ratio within [plain_low, plain_high] is certain to be below its limit and to enter the mean as it is.
  double plain_low;
  double plain_high;
};

/// The state of a unit's norms and changes: m, p, q and f of docs/algorithm.md.
template <class Real>
struct Memory {
  Real mean_sum;
  Real mean_weight;
  Real rise_change_sum;
  Real fall_change_sum;
};

/// What decides whether a unit is at risk.
template <class Real>
struct Limits {
  Real ratio;
  Real delta;
  Real fall;
};

/// The oldest kept ratio and inverse.
template <class Real>
struct Kept {
  Real ratio;
  Real inverse;
};

/// The signals of a unit with a finite norm that is not 0, and its memory after the step.
struct Outcome {
  double ratio;
  double inverse;
  double delta;
  double fall;
  double severity;
  bool at_risk;
  bool by_fall;  // the kind of the risk, if it is one
  bool learned;  // the usual change took this step's
  Memory<double> next;
};

template <class Real>
GNMR_UNIT_MATH Real splat(double value) {
  return Real{} + value;
}
template <>
GNMR_UNIT_MATH double splat<double>(double value) {
  return value;
}

template <class Real>
GNMR_UNIT_MATH Real min_of(Real a, Real b) {
  return b < a ? b : a;
}

template <class Real>
GNMR_UNIT_MATH Real max_of(Real a, Real b) {
  return a < b ? b : a;
}

/// The magnitude of a difference of two values that are not negative (never -0, so that lanes may clear the sign).
template <class Real>
GNMR_UNIT_MATH Real abs_of(Real value) {
  return value < splat<Real>(0.0) ? -value : value;
}

/// The weight that follows `weight` when one more sample has come in.
template <class Real>
GNMR_UNIT_MATH Real next_weight(double decay, Real weight) {
  const Real next = decay * weight;
  return next < splat<Real>(kWeightFloor) ? splat<Real>(0.0) : next;
}

/// A sum with decaying weights as a mean; `complement` is 1 minus the weight that is left, or 1 where there was none.
template <class Real>
GNMR_UNIT_MATH Real mean_of(Real sum, Real complement) {
  return sum / complement;
}

/// What divides a sum to give its mean; before the first sample 1, as the sum is 0 then and so is the mean.
GNMR_UNIT_MATH double complement_of(double weight) { return weight == 1.0 ? 1.0 : 1.0 - weight; }

/// GNMR.
template <class Real>
GNMR_UNIT_MATH Real ratio_of(Real norm, Real mean) {
  return mean == splat<Real>(0.0) ? splat<Real>(1.0) : min_of(norm / mean, splat<Real>(kRatioCap));
}

/// A ratio as it enters the centre; truncating it to an integer is the floor, as it is not negative.
template <class Real>
GNMR_UNIT_MATH Real centre_share(Real ratio) {
  return min_of(ratio, splat<Real>(kCentreCap)) * kCentreScale;
}

/// The inverse that Fall-GNMR looks at.
template <class Real>
GNMR_UNIT_MATH Real inverse_of(Real centre, Real ratio) {
  return ratio == splat<Real>(0.0) ? splat<Real>(kRatioCap) : min_of(centre / ratio, splat<Real>(kRatioCap));
}

/// A rise (Delta-GNMR) or fall (Fall-GNMR) against the oldest kept value.
template <class Real>
GNMR_UNIT_MATH Real rise_over(Real value, Real oldest, double baseline) {
  return value - max_of(oldest, splat<Real>(baseline));
}

/// Limits from the usual changes.
template <class Real>
GNMR_UNIT_MATH Limits<Real> limits_of(const Rules& rules, Real noise, Real fall_noise) {
  const Real scaled = rules.noise_factor * noise;
  const Real fall_scaled = rules.noise_factor * fall_noise;
  return {max_of(splat<Real>(rules.tau), 1.0 + scaled), max_of(splat<Real>(rules.delta_tau), scaled),
          max_of(splat<Real>(rules.fall_tau), fall_scaled)};
}

/// One exponential step of a sum.
template <class Real>
GNMR_UNIT_MATH Real decayed(double decay, double one_minus_decay, Real sum, Real sample) {
  return decay * sum + one_minus_decay * sample;
}

/// Whether a warm sample is certain to be usual: no risk, it is learned from, and it enters the mean uncapped.
///
/// It implies what `outcome_of` would find, without its divisions: x / y > 1 exactly where x > y, a delta is at most
/// its change, and limits may be taken a little too low: `noise` and `fall_noise` are at most the true ones. A ratio
/// in range also shows that the norm is finite and not 0 and that there is a mean: the others give 0, infinity or NaN.
template <class Real>
GNMR_UNIT_MATH auto plainly_usual(const Rules& rules, Real noise, Real fall_noise, Real ratio, Real change,
                                  Real fall_change) {
  const Real delta_limit = max_of(splat<Real>(rules.delta_tau), rules.noise_factor * noise);
  const Real fall_limit = max_of(splat<Real>(rules.fall_tau), rules.noise_factor * fall_noise);
  return (ratio >= splat<Real>(rules.plain_low)) & (ratio <= splat<Real>(rules.plain_high)) & (change <= delta_limit) &
         (fall_change <= fall_limit);
}

/// The severity of a gradient that is gone: a norm of 0 after warm-up.
GNMR_UNIT_MATH double severity_of_zero(const Rules& rules, double fall_change_sum, double noise_complement) {
  const double fall_noise = mean_of(fall_change_sum, noise_complement);
  return kRatioCap / limits_of(rules, 0.0, fall_noise).fall;
}

/// What one finite norm that is not 0 does to one unit; `samples` is k before it.
struct Sample {
  double norm;
  unsigned samples;
  double noise_complement;  // 1 - w
  double ratio;             // `ratio_of`, from the first pass
};

/// All signals of one unit and its next memory.
GNMR_UNIT_MATH Outcome outcome_of(const Rules& rules, const Memory<double>& memory, const Kept<double>& oldest,
                                  const Sample& sample, double centre) {
  Outcome out{};
  out.next = memory;
  out.ratio = sample.ratio;
  double entering = sample.norm;
  if (sample.samples == 0) {
    out.inverse = 1.0;
  } else {
    const bool warm = sample.samples >= rules.warmup_samples;
    const Limits<double> limits = limits_of(rules, mean_of(memory.rise_change_sum, sample.noise_complement),
                                            mean_of(memory.fall_change_sum, sample.noise_complement));
    out.inverse = inverse_of(centre, out.ratio);
    out.delta = rise_over(out.ratio, oldest.ratio, rules.baseline);
    out.fall = rise_over(out.inverse, oldest.inverse, rules.baseline);

    const double of_rise = max_of(out.ratio / limits.ratio, out.delta / limits.delta);
    const double of_fall = rules.fall_on ? out.fall / limits.fall : 0.0;
    out.by_fall = rules.fall_on && of_fall > of_rise;
    out.severity = out.by_fall ? of_fall : of_rise;
    out.at_risk = warm && out.severity > 1.0;

    const double change = abs_of(out.ratio - oldest.ratio);
    const double fall_change = rules.fall_on ? abs_of(out.inverse - oldest.inverse) : 0.0;
    out.learned =
        !warm || (out.severity <= 1.0 && change <= limits.delta && (!rules.fall_on || fall_change <= limits.fall));
    if (out.learned) {
      const double taken = warm ? change : min_of(change, rules.delta_tau);
      const double fall_taken = warm ? fall_change : min_of(fall_change, rules.fall_tau);
      out.next.rise_change_sum = decayed(rules.noise_beta, rules.one_minus_noise_beta, memory.rise_change_sum, taken);
      out.next.fall_change_sum =
          decayed(rules.noise_beta, rules.one_minus_noise_beta, memory.fall_change_sum, fall_taken);
    }
    const double mean = mean_of(memory.mean_sum, complement_of(memory.mean_weight));
    if (warm && rules.cap_on && mean > 0.0) {
      entering = min_of(max_of(sample.norm, mean / rules.mean_cap), rules.mean_cap * mean);
    }
  }
  out.next.mean_weight = next_weight(rules.beta, memory.mean_weight);
  out.next.mean_sum = decayed(rules.beta, rules.one_minus_beta, memory.mean_sum, entering);
  return out;
}

}  // namespace gnmr::unit_math

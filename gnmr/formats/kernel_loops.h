// SPDX-License-Identifier: Apache-2.0
// The bodies of the kernels; each file that includes this gets its own, compiled for its instruction set.
//
// Everything has internal linkage or is always inlined, so that no function compiled for a newer machine is linked
// elsewhere. An output may be its input: the loops carry nothing from one element to the next, as the pragma says.
#pragma once

#include "gnmr/formats/kernels.h"

#if defined(__clang__)
#define GNMR_INDEPENDENT_ELEMENTS _Pragma("clang loop vectorize(assume_safety)")
#define GNMR_ROLLED
#else
#define GNMR_INDEPENDENT_ELEMENTS _Pragma("GCC ivdep")
// A short loop that is unrolled before it becomes lanes ends as lanes over groups, with many shuffles.
#define GNMR_ROLLED _Pragma("GCC unroll 1")
#endif

namespace gnmr::formats {
namespace {

template <Format kFormat, Rounding kRounding>
GNMR_FORMATS_INLINE Element element_at(const float* in, std::size_t i, const RoundTask& task) {
  const std::uint32_t index = task.first_index + static_cast<std::uint32_t>(i);
  const std::uint32_t random = kRounding == Rounding::stochastic ? random_bits(task.key, index) : 0u;
  return to_format<kFormat, kRounding>(in[i], random, task.target);
}

template <Format kFormat, Rounding kRounding>
void round_run(const float* in, std::size_t count, const RoundTask& task_of_run, float* out) {
  const RoundTask task = task_of_run;
  GNMR_INDEPENDENT_ELEMENTS
  for (std::size_t i = 0; i < count; ++i) out[i] = element_at<kFormat, kRounding>(in, i, task).value;
}

template <Format kFormat, Rounding kRounding, class Code>
void encode_run(const float* in, std::size_t count, const RoundTask& task_of_run, Code* out) {
  const RoundTask task = task_of_run;  // bytes may alias anything: keep the task out of memory
  GNMR_INDEPENDENT_ELEMENTS
  for (std::size_t i = 0; i < count; ++i) {
    out[i] = static_cast<Code>(element_at<kFormat, kRounding>(in, i, task).code);
  }
}

template <Format kFormat, class Code>
void decode_run(const Code* in, std::size_t count, float* out) {
  GNMR_INDEPENDENT_ELEMENTS
  for (std::size_t i = 0; i < count; ++i) out[i] = from_format<kFormat>(in[i]);
}

struct Divide {
  GNMR_FORMATS_INLINE static float of(float value, float scale) { return value / scale; }
};
struct Multiply {
  GNMR_FORMATS_INLINE static float of(float value, float scale) { return value * scale; }
};

template <class Operation>
GNMR_FORMATS_INLINE void scale_one_group(const float* in, std::size_t count, float scale, float* out) {
  GNMR_INDEPENDENT_ELEMENTS
  GNMR_ROLLED
  for (std::size_t i = 0; i < count; ++i) out[i] = Operation::of(in[i], scale);
}

/// Whole groups of a size that the compiler knows; says how many elements it did.
template <class Operation, std::size_t kSize>
GNMR_FORMATS_INLINE std::size_t scale_whole_groups(const float* in, std::size_t count, const float* scales,
                                                   float* out) {
  const std::size_t groups = count / kSize;
  for (std::size_t group = 0; group < groups; ++group) {
    scale_one_group<Operation>(in + group * kSize, kSize, scales[group], out + group * kSize);
  }
  return groups * kSize;
}

template <class Operation>
void scale_run(const float* in, std::size_t count, GroupScales groups, float* out) {
  if (groups.group_size == 1) {
    const float* const scales = groups.scales;
    GNMR_INDEPENDENT_ELEMENTS
    for (std::size_t i = 0; i < count; ++i) out[i] = Operation::of(in[i], scales[i]);
    return;
  }
  std::size_t done = 0;
  if (groups.group_size == 16) {
    done = scale_whole_groups<Operation, 16>(in, count, groups.scales, out);
  } else if (groups.group_size == 32) {
    done = scale_whole_groups<Operation, 32>(in, count, groups.scales, out);
  }
  for (; done < count; done += groups.group_size) {
    const std::size_t left = count - done;
    scale_one_group<Operation>(in + done, left < groups.group_size ? left : groups.group_size,
                               groups.scales[done / groups.group_size], out + done);
  }
}

// Magnitudes are below 2^31, so their order is that of signed numbers, for which lanes have a maximum.
GNMR_FORMATS_INLINE std::int32_t magnitude_of(float value) {
  return static_cast<std::int32_t>(as_bits(value) & ~kSignBit);
}
GNMR_FORMATS_INLINE std::int32_t larger(std::int32_t a, std::int32_t b) { return a > b ? a : b; }
GNMR_FORMATS_INLINE void raise(std::uint32_t& entry, std::int32_t magnitude) {
  entry = static_cast<std::uint32_t>(larger(magnitude, static_cast<std::int32_t>(entry)));
}

GNMR_FORMATS_INLINE std::int32_t largest_of(const float* in, std::size_t count) {
  std::int32_t largest = 0;
  GNMR_ROLLED
  for (std::size_t i = 0; i < count; ++i) largest = larger(magnitude_of(in[i]), largest);
  return largest;
}

template <std::size_t kSize>
GNMR_FORMATS_INLINE std::size_t raise_whole_groups(const float* in, std::size_t count, std::uint32_t* amax_bits) {
  const std::size_t groups = count / kSize;
  for (std::size_t group = 0; group < groups; ++group) {
    raise(amax_bits[group], largest_of(in + group * kSize, kSize));
  }
  return groups * kSize;
}

void raise_amax_run(const float* in, std::size_t count, std::size_t group_size, std::uint32_t* amax_bits) {
  if (group_size == 1) {
    GNMR_INDEPENDENT_ELEMENTS
    for (std::size_t i = 0; i < count; ++i) raise(amax_bits[i], magnitude_of(in[i]));
    return;
  }
  std::size_t done = 0;
  if (group_size == 16) {
    done = raise_whole_groups<16>(in, count, amax_bits);
  } else if (group_size == 32) {
    done = raise_whole_groups<32>(in, count, amax_bits);
  }
  for (; done < count; done += group_size) {
    const std::size_t left = count - done;
    raise(amax_bits[done / group_size], largest_of(in + done, left < group_size ? left : group_size));
  }
}

#define GNMR_OF_FORMATS(OF)                                                                                     \
  {                                                                                                             \
    OF(Format::e4m3), OF(Format::e5m2), OF(Format::e3m2), OF(Format::e2m3), OF(Format::e2m1), OF(Format::e8m0), \
        OF(Format::bfloat16), OF(Format::int8), OF(Format::int4), OF(Format::int3)                              \
  }
#define GNMR_ROUND_OF(FORMAT) \
  { round_run<FORMAT, Rounding::nearest_even>, round_run<FORMAT, Rounding::stochastic> }
#define GNMR_ENCODE_OF(FORMAT) \
  { byte_encoder<FORMAT, Rounding::nearest_even>(), byte_encoder<FORMAT, Rounding::stochastic>() }
#define GNMR_DECODE_OF(FORMAT) byte_decoder<FORMAT>()

using ByteEncoder = void (*)(const float*, std::size_t, const RoundTask&, std::uint8_t*);
using ByteDecoder = void (*)(const std::uint8_t*, std::size_t, float*);

/// The encoder into bytes; null for bfloat16, which does not fit.
template <Format kFormat, Rounding kRounding>
constexpr ByteEncoder byte_encoder() {
  if constexpr (kFormat == Format::bfloat16)
    return nullptr;
  else
    return encode_run<kFormat, kRounding, std::uint8_t>;
}

template <Format kFormat>
constexpr ByteDecoder byte_decoder() {
  if constexpr (kFormat == Format::bfloat16)
    return nullptr;
  else
    return decode_run<kFormat, std::uint8_t>;
}

std::uint32_t replace_infinities_run(float* values, std::size_t count, float target) {
  std::uint32_t found = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t bits = as_bits(values[i]);
    const bool infinite = (bits & ~kSignBit) == kInfinityBits;
    values[i] = infinite ? as_float(as_bits(target) | (bits & kSignBit)) : values[i];
    found += infinite ? 1u : 0u;
  }
  return found;
}

/// Sums of one element, in the lane that its place in the run says.
struct TallyLanes {
  static constexpr std::size_t kCount = 8;
  double squared_error[kCount] = {};
  double squared_values[kCount] = {};
  std::uint32_t non_finite[kCount] = {};
  std::uint32_t flushed[kCount] = {};
};

GNMR_FORMATS_INLINE void tally_element(const TallyTask& task, std::size_t i, TallyLanes& lanes, std::size_t lane) {
  const float original = task.originals[i];
  const float restored = task.restored[i];
  const bool finite = (as_bits(original) & ~kSignBit) < kInfinityBits;
  const bool both = finite & ((as_bits(restored) & ~kSignBit) < kInfinityBits);
  const double error = static_cast<double>(both ? restored : 0.0f) - static_cast<double>(both ? original : 0.0f);
  const double value = static_cast<double>(both ? original : 0.0f);
  lanes.squared_error[lane] += error * error;
  lanes.squared_values[lane] += value * value;
  lanes.non_finite[lane] += finite ? 0u : 1u;
  lanes.flushed[lane] += (finite & (original != 0.0f) & (task.rounded[i] == 0.0f)) ? 1u : 0u;
}

void tally_run(const TallyTask& task_of_run, Tally& tally) {
  const TallyTask task = task_of_run;
  TallyLanes lanes;
  std::size_t i = 0;
  for (; i + TallyLanes::kCount <= task.count; i += TallyLanes::kCount) {
    for (std::size_t lane = 0; lane < TallyLanes::kCount; ++lane) tally_element(task, i + lane, lanes, lane);
  }
  for (std::size_t lane = 0; i < task.count; ++i, ++lane) tally_element(task, i, lanes, lane);
  for (std::size_t lane = 0; lane < TallyLanes::kCount; ++lane) {
    tally.squared_error += lanes.squared_error[lane];
    tally.squared_values += lanes.squared_values[lane];
    tally.non_finite += lanes.non_finite[lane];
    tally.flushed += lanes.flushed[lane];
  }
}

constexpr Kernels make_kernels(const char* name) {
  return {name,
          GNMR_OF_FORMATS(GNMR_ROUND_OF),
          GNMR_OF_FORMATS(GNMR_ENCODE_OF),
          {encode_run<Format::bfloat16, Rounding::nearest_even, std::uint16_t>,
           encode_run<Format::bfloat16, Rounding::stochastic, std::uint16_t>},
          GNMR_OF_FORMATS(GNMR_DECODE_OF),
          decode_run<Format::bfloat16, std::uint16_t>,
          scale_run<Divide>,
          scale_run<Multiply>,
          raise_amax_run,
          replace_infinities_run,
          tally_run};
}

}  // namespace
}  // namespace gnmr::formats

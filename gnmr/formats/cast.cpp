// SPDX-License-Identifier: Apache-2.0
#include "gnmr/formats/cast.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <stdexcept>
#include <string>

#include "gnmr/formats/cast_runs.h"

namespace gnmr::formats {

namespace {

constexpr std::array<std::string_view, kFormatCount> kNames{"e4m3", "e5m2",     "e3m2", "e2m3", "e2m1",
                                                            "e8m0", "bfloat16", "int8", "int4", "int3"};
constexpr float kOne = 1.0f;

void require_same_size(const char* where, std::size_t values, std::size_t others) {
  if (values == others) return;
  throw std::invalid_argument("[" + std::string(where) + "] expected " + std::to_string(values) + " places, got " +
                              std::to_string(others));
}

void require_bytes(const char* where, Format format) {
  if (format != Format::bfloat16) return;
  throw std::invalid_argument("[" + std::string(where) + "] expected a format of at most 8 bits, got bfloat16");
}

/// Counts a run piece by piece; the rounded values themselves are not wanted.
void count_run(const CastRuns& runs, std::span<const float> values, std::uint64_t first_index, Statistics& statistics) {
  std::array<float, kPieceSize> piece;
  for (std::size_t done = 0; done < values.size(); done += kPieceSize) {
    const std::size_t count = std::min(kPieceSize, values.size() - done);
    std::copy_n(values.data() + done, count, piece.data());
    runs.round_counted(values.data() + done, count, first_index + done, {&kOne, count}, piece.data(), statistics);
  }
}

template <class Code>
void encode_all(const Cast& cast, std::span<const float> values, std::span<Code> codes, Statistics* statistics) {
  const CastRuns runs(cast, best_kernels());
  runs.encode(values.data(), values.size(), cast.first_index, codes.data());
  if (statistics != nullptr) count_run(runs, values, cast.first_index, *statistics);
}

}  // namespace

std::string_view format_name(Format format) { return kNames[static_cast<std::size_t>(format)]; }

std::optional<Format> find_format(std::string_view name) {
  const auto found = std::find(kNames.begin(), kNames.end(), name);
  if (found == kNames.end()) return std::nullopt;
  return static_cast<Format>(found - kNames.begin());
}

double Statistics::relative_error() const {
  return squared_values > 0 ? std::sqrt(squared_error / squared_values) : 0.0;
}

Statistics& Statistics::operator+=(const Statistics& other) {
  elements += other.elements;
  non_finite += other.non_finite;
  overflowed += other.overflowed;
  flushed += other.flushed;
  squared_error += other.squared_error;
  squared_values += other.squared_values;
  return *this;
}

void encode(const Cast& cast, std::span<const float> values, std::span<std::uint8_t> codes, Statistics* statistics) {
  require_bytes("encode", cast.format);
  require_same_size("encode", values.size(), codes.size());
  encode_all(cast, values, codes, statistics);
}

void encode_bfloat16(const Cast& cast, std::span<const float> values, std::span<std::uint16_t> codes,
                     Statistics* statistics) {
  require_same_size("encode_bfloat16", values.size(), codes.size());
  Cast to_bfloat16 = cast;
  to_bfloat16.format = Format::bfloat16;
  encode_all(to_bfloat16, values, codes, statistics);
}

void decode(Format format, std::span<const std::uint8_t> codes, std::span<float> values) {
  require_bytes("decode", format);
  require_same_size("decode", codes.size(), values.size());
  best_kernels().decode[static_cast<std::size_t>(format)](codes.data(), codes.size(), values.data());
}

void decode_bfloat16(std::span<const std::uint16_t> codes, std::span<float> values) {
  require_same_size("decode_bfloat16", codes.size(), values.size());
  best_kernels().decode_bfloat16(codes.data(), codes.size(), values.data());
}

void round_values(const Cast& cast, std::span<const float> values, std::span<float> rounded, Statistics* statistics) {
  require_same_size("round_values", values.size(), rounded.size());
  const CastRuns runs(cast, best_kernels());
  if (statistics != nullptr) count_run(runs, values, cast.first_index, *statistics);
  runs.round(values.data(), values.size(), cast.first_index, rounded.data());
}

float finite_amax(std::span<const float> values) {
  std::uint32_t bits = 0;
  if (!values.empty()) best_kernels().raise_amax(values.data(), values.size(), values.size(), &bits);
  if (bits < kInfinityBits) return as_float(bits);
  bits = 0;
  for (const float value : values) {
    const std::uint32_t magnitude = as_bits(value) & ~kSignBit;
    if (magnitude < kInfinityBits) bits = std::max(bits, magnitude);
  }
  return as_float(bits);
}

CastRuns::CastRuns(const Cast& cast, const Kernels& kernels)
    : cast_(cast), target_(overflow_target(cast.format, cast.overflow)), kernels_(kernels) {}

template <class Kernel, class Output>
void CastRuns::run(Kernel kernel, const float* values, std::size_t count, std::uint64_t index, OverflowTarget target,
                   Output* output) const {
  while (count > 0) {
    // Random bits change their key at multiples of 2^32.
    const std::uint64_t until_next_key = (std::uint64_t{1} << 32) - (index & 0xffffffffu);
    const std::size_t now = static_cast<std::size_t>(std::min<std::uint64_t>(count, until_next_key));
    kernel(values, now,
           {target, random_key(cast_.seed, static_cast<std::uint32_t>(index >> 32)), static_cast<std::uint32_t>(index)},
           output);
    values += now;
    output += now;
    index += now;
    count -= now;
  }
}

void CastRuns::round(const float* values, std::size_t count, std::uint64_t index, float* rounded) const {
  run(kernels_.round[static_cast<std::size_t>(cast_.format)][static_cast<std::size_t>(cast_.rounding)], values, count,
      index, target_, rounded);
}

void CastRuns::encode(const float* values, std::size_t count, std::uint64_t index, std::uint8_t* codes) const {
  run(kernels_.encode[static_cast<std::size_t>(cast_.format)][static_cast<std::size_t>(cast_.rounding)], values, count,
      index, target_, codes);
}

void CastRuns::encode(const float* values, std::size_t count, std::uint64_t index, std::uint16_t* codes) const {
  run(kernels_.encode_bfloat16[static_cast<std::size_t>(cast_.rounding)], values, count, index, target_, codes);
}

void CastRuns::round_counted(const float* originals, std::size_t count, std::uint64_t index, GroupScales groups,
                             float* rounded, Statistics& statistics) const {
  // Infinity as the target marks overflows in every format, for this pass to count and replace.
  const OverflowTarget marker{as_float(kInfinityBits), 0};
  run(kernels_.round[static_cast<std::size_t>(cast_.format)][static_cast<std::size_t>(cast_.rounding)], rounded, count,
      index, marker, rounded);
  Tally tally;
  tally.overflowed = kernels_.replace_infinities(rounded, count, target_.value);
  std::array<float, kPieceSize> restored;
  kernels_.multiply(rounded, count, groups, restored.data());
  kernels_.tally({originals, rounded, restored.data(), count}, tally);
  statistics.non_finite += tally.non_finite;
  statistics.overflowed += tally.overflowed;
  statistics.flushed += tally.flushed;
  statistics.squared_error += tally.squared_error;
  statistics.squared_values += tally.squared_values;
  statistics.elements += count;
}

}  // namespace gnmr::formats

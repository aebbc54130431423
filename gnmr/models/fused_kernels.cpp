// SPDX-License-Identifier: Apache-2.0
#include "gnmr/models/fused_kernels.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>

#include "gnmr/core/for_each_machine.h"

namespace gnmr::models {
namespace {

// As many partial sums as the widest machine has lanes: the order of additions is the same on all.
constexpr std::int64_t kLanes = 16;
using Sums = std::array<float, static_cast<std::size_t>(kLanes)>;

inline __attribute__((always_inline)) float total(const Sums& sums) {
  float pairs[8];
  for (std::size_t i = 0; i < 8; ++i) pairs[i] = sums[i] + sums[i + 8];
  for (std::size_t i = 0; i < 4; ++i) pairs[i] += pairs[i + 4];
  return (pairs[0] + pairs[2]) + (pairs[1] + pairs[3]);
}

// e^x to about one unit in the last place, for x clamped to where the result is a normal number. A NaN stays one.
inline __attribute__((always_inline)) float exponential(float x) {
  constexpr float kRoundToWhole = 12582912.0F;  // 1.5 * 2^23: what is added to it loses its fraction
  x = x > 88.0F ? 88.0F : x;
  x = x < -87.0F ? -87.0F : x;
  const float shifted = x * 1.44269504088896341F + kRoundToWhole;
  const float power = shifted - kRoundToWhole;
  const float rest = (x - power * 0.693359375F) - power * -2.12194440e-4F;
  float series = 1.9875691500e-4F;
  series = series * rest + 1.3981999507e-3F;
  series = series * rest + 8.3334519073e-3F;
  series = series * rest + 4.1665795894e-2F;
  series = series * rest + 1.6666665459e-1F;
  series = series * rest + 5.0000001201e-1F;
  const float mantissa = (series * (rest * rest) + rest) + 1.0F;
  const std::uint32_t exponent = (std::bit_cast<std::uint32_t>(shifted) << 23U) + 0x3f800000U;
  return mantissa * std::bit_cast<float>(exponent);
}

inline __attribute__((always_inline)) float sigmoid(float x) { return 1.0F / (1.0F + exponential(-x)); }

inline __attribute__((always_inline)) float sum_of_squares(const float* row, std::int64_t width) {
  Sums sums{};
  std::int64_t i = 0;
  for (; i + kLanes <= width; i += kLanes) {
    for (std::int64_t lane = 0; lane < kLanes; ++lane) {
      sums[static_cast<std::size_t>(lane)] += row[i + lane] * row[i + lane];
    }
  }
  for (; i < width; ++i) sums[0] += row[i] * row[i];
  return total(sums);
}

inline __attribute__((always_inline)) float triple_product_sum(const float* a, const float* b, const float* c,
                                                               std::int64_t width) {
  Sums sums{};
  std::int64_t i = 0;
  for (; i + kLanes <= width; i += kLanes) {
    for (std::int64_t lane = 0; lane < kLanes; ++lane) {
      sums[static_cast<std::size_t>(lane)] += a[i + lane] * b[i + lane] * c[i + lane];
    }
  }
  for (; i < width; ++i) sums[0] += a[i] * b[i] * c[i];
  return total(sums);
}

}  // namespace

GNMR_FOR_EACH_MACHINE
void rms_norm_forward(const RmsNormForward& arrays, RowRange rows) {
  const float* __restrict__ const weight = arrays.weight;
  const auto width = rows.width;
  for (std::int64_t row = rows.begin; row < rows.end; ++row) {
    const float* input = arrays.input + row * width;
    if (arrays.addend != nullptr) {
      const float* __restrict__ const addend = arrays.addend + row * width;
      float* __restrict__ const sum = arrays.sum + row * width;
      for (std::int64_t i = 0; i < width; ++i) sum[i] = input[i] + addend[i];
      input = sum;
    }
    const float mean = sum_of_squares(input, width) / static_cast<float>(width);
    const float inverse_rms = 1.0F / std::sqrt(mean + arrays.eps);
    arrays.inverse_rms[row] = inverse_rms;
    float* __restrict__ const output = arrays.output + row * width;
    for (std::int64_t i = 0; i < width; ++i) output[i] = weight[i] * (input[i] * inverse_rms);
  }
}

GNMR_FOR_EACH_MACHINE
void rms_norm_backward(const RmsNormBackward& arrays, RowRange rows) {
  const float* __restrict__ const weight = arrays.weight;
  float* __restrict__ const weight_gradient = arrays.weight_gradient;
  const auto width = rows.width;
  if (weight_gradient != nullptr) {
    for (std::int64_t i = 0; i < width; ++i) weight_gradient[i] = 0;
  }
  for (std::int64_t row = rows.begin; row < rows.end; ++row) {
    const float* __restrict__ const gradient = arrays.output_gradient + row * width;
    const float* __restrict__ const normalised = arrays.normalised + row * width;
    float* __restrict__ const result = arrays.input_gradient + row * width;
    const float inverse_rms = arrays.inverse_rms[row];
    // d(x_i r)/dx_j = r (1_ij - r^2 x_i x_j / width)
    const float along = triple_product_sum(gradient, weight, normalised, width) / static_cast<float>(width);
    const float pull = along * inverse_rms * inverse_rms;
    for (std::int64_t i = 0; i < width; ++i) {
      result[i] = inverse_rms * (gradient[i] * weight[i] - normalised[i] * pull);
    }
    if (arrays.sum_gradient != nullptr) {
      const float* __restrict__ const sum_gradient = arrays.sum_gradient + row * width;
      for (std::int64_t i = 0; i < width; ++i) result[i] += sum_gradient[i];
    }
    if (weight_gradient != nullptr) {
      for (std::int64_t i = 0; i < width; ++i) weight_gradient[i] += gradient[i] * (normalised[i] * inverse_rms);
    }
  }
}

GNMR_FOR_EACH_MACHINE
void swiglu_forward(const float* gate, const float* up, float* output, std::int64_t begin, std::int64_t end) {
  const float* __restrict__ const g = gate;
  const float* __restrict__ const u = up;
  float* __restrict__ const out = output;
  for (std::int64_t i = begin; i < end; ++i) out[i] = g[i] * sigmoid(g[i]) * u[i];
}

GNMR_FOR_EACH_MACHINE
void swiglu_backward(const SwigluBackward& arrays, std::int64_t begin, std::int64_t end) {
  const float* __restrict__ const gradient = arrays.output_gradient;
  const float* __restrict__ const gate = arrays.gate;
  const float* __restrict__ const up = arrays.up;
  float* __restrict__ const gate_gradient = arrays.gate_gradient;
  float* __restrict__ const up_gradient = arrays.up_gradient;
  for (std::int64_t i = begin; i < end; ++i) {
    const float share = sigmoid(gate[i]);
    const float activated = gate[i] * share;
    up_gradient[i] = gradient[i] * activated;
    gate_gradient[i] = gradient[i] * up[i] * (share + activated * (1.0F - share));
  }
}

GNMR_FOR_EACH_MACHINE
void rotate(const Rotation& arrays, std::int64_t begin_token, std::int64_t end_token) {
  const std::int64_t half = arrays.head_dim / 2;
  const float sign = arrays.backwards ? -1.0F : 1.0F;
  for (std::int64_t token = begin_token; token < end_token; ++token) {
    const std::int64_t position = token % arrays.positions;
    const float* __restrict__ const cosine = arrays.cosine + position * half;
    const float* __restrict__ const sine = arrays.sine + position * half;
    for (std::int64_t head = 0; head < arrays.heads; ++head) {
      const std::int64_t first = (token * arrays.heads + head) * arrays.head_dim;
      const float* __restrict__ const x = arrays.input + first;
      const float* __restrict__ const y = x + half;
      float* __restrict__ const turned_x = arrays.output + first;
      float* __restrict__ const turned_y = turned_x + half;
      for (std::int64_t i = 0; i < half; ++i) {
        const float s = sine[i] * sign;
        turned_x[i] = x[i] * cosine[i] - y[i] * s;
        turned_y[i] = y[i] * cosine[i] + x[i] * s;
      }
    }
  }
}

}  // namespace gnmr::models

// SPDX-License-Identifier: Apache-2.0
// The loops of fused_ops.h on plain arrays of float32: what torch composes of many passes, in one.
//
// Every row is computed by itself and every sum in a fixed order, so results depend on no number of threads, and on no
// instruction set: nothing is contracted. NaN and infinity go through as data.
//
// Goals: one pass over memory. Non-goals: threads, tensors, other types than float32.
#pragma once

#include <cstdint>

namespace gnmr::models {

/// Rows of `width` elements.
struct RowRange {
  std::int64_t begin;
  std::int64_t end;
  std::int64_t width;
};

/// output = input / rms(input) * weight, and each row's 1 / rms. With `addend`, input + addend is normalised and also
/// written to `sum`; both are null otherwise.
struct RmsNormForward {
  const float* input;
  const float* addend;
  const float* weight;
  float* sum;
  float* output;
  float* inverse_rms;
  float eps;
};
void rms_norm_forward(const RmsNormForward& arrays, RowRange rows);

/// The gradient of what was normalised, plus `sum_gradient` where it is not null; the rows' part of the weight's
/// gradient is written to `weight_gradient`, which may be null.
struct RmsNormBackward {
  const float* output_gradient;
  const float* sum_gradient;
  const float* normalised;  // the input, or the sum
  const float* weight;
  const float* inverse_rms;
  float* input_gradient;
  float* weight_gradient;
};
void rms_norm_backward(const RmsNormBackward& arrays, RowRange rows);

/// output = silu(gate) * up, for elements from `begin` to `end`.
void swiglu_forward(const float* gate, const float* up, float* output, std::int64_t begin, std::int64_t end);

/// The gradients of both factors.
struct SwigluBackward {
  const float* output_gradient;
  const float* gate;
  const float* up;
  float* gate_gradient;
  float* up_gradient;
};
void swiglu_backward(const SwigluBackward& arrays, std::int64_t begin, std::int64_t end);

/// Each head's first half and second half are a pair of coordinates, turned by the angle of the token's position.
struct Rotation {
  const float* input;  // [tokens, heads, head_dim]
  float* output;
  const float* cosine;  // [positions, head_dim / 2]
  const float* sine;
  std::int64_t positions;  // tokens are `positions` of one sequence, then of the next
  std::int64_t heads;
  std::int64_t head_dim;
  bool backwards;  // by the negative angle
};
void rotate(const Rotation& arrays, std::int64_t begin_token, std::int64_t end_token);

}  // namespace gnmr::models

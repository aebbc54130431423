// SPDX-License-Identifier: Apache-2.0
// The operations of a block between its linear layers, each with its gradient: one pass over memory where torch
// composes several.
//
// Float32 on the CPU goes through fused_kernels.h; anything else through torch's own operators, with the same meaning.
//
// Goals: few operators and few saved tensors per block. Non-goals: second derivatives of the fused forms.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <utility>

namespace gnmr::models {

/// input / rms(input) * weight over the last dimension.
at::Tensor rms_norm(const at::Tensor& input, const at::Tensor& weight, double eps);

/// input + addend, and rms_norm of that.
std::pair<at::Tensor, at::Tensor> add_rms_norm(const at::Tensor& input, const at::Tensor& addend,
                                               const at::Tensor& weight, double eps);

/// silu(gate) * up.
at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up);

/// Cosine and sine of each position's angles: [positions, head_dim / 2], float32.
struct RotaryTable {
  at::Tensor cosine;
  at::Tensor sine;
};

/// The angles of positions from 0; a pair's frequency is theta^(-2 i / head_dim).
RotaryTable make_rotary_table(std::int64_t positions, std::int64_t head_dim, double theta);

/// `input` is [batch, positions, heads * head_dim]; the result [batch, positions, heads, head_dim], where the halves of
/// a head are turned by the position's angles. The table has exactly the positions.
at::Tensor rotate_positions(const at::Tensor& input, const RotaryTable& table, std::int64_t heads);

}  // namespace gnmr::models

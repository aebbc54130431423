// SPDX-License-Identifier: Apache-2.0
// Operands as a low path has them: numbers that were rounded, or real codes with their scales; and products of them.
//
// Goals: one way to a low product on every device; both sides of a matrix out of one cast where two products need them;
// hooks, evidence and amax on the way. Non-goals: which product runs low (switchable_linear.h), casts that several
// layers share (shared_input.h).
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>

#include "gnmr/torch/fp8_matrix.h"
#include "gnmr/torch/linear_paths.h"
#include "gnmr/torch/operand_cast.h"

namespace gnmr::nn {

/// A matrix [rows, columns] as a low path has it.
struct LowOperand {
  at::Tensor values;  // numbers; undefined: codes
  Fp8Matrix codes;

  bool defined() const { return values.defined() || codes.defined(); }
};

/// Along which dimension each product sums, for its two operands as `operands_of` orders them.
constexpr std::array<SumOver, 2> sums_over(Product product) {
  switch (product) {
    case Product::forward:
      return {SumOver::columns, SumOver::columns};
    case Product::input_gradient:
      return {SumOver::columns, SumOver::rows};
    case Product::weight_gradient:
      break;
  }
  return {SumOver::rows, SumOver::rows};
}

/// One operand of one product, and of a second product that takes the same cast.
struct OperandUse {
  Product product = Product::forward;
  std::size_t place = 0;
  bool shared = false;  // with the product and place below
  Product other_product = Product::forward;
  std::size_t other_place = 0;
};

/// Whether one cast of a matrix can be what two products need. Where a rule depends on the direction that takes both
/// sides out of one cast, which real codes have.
bool can_share_cast(const LinearPaths& paths, const OperandUse& use, const at::Tensor& matrix);

/// What a cast did to its values, where a layer's evidence asks for it.
struct CastCounts {
  bool counted = false;
  formats::Statistics on_host = {};                       // where nothing is on the device
  std::array<const formats::Statistics*, 2> on_device{};  // the product's and the other one's; until the next step
};

/// Whether a layer's casts are counted in this pass.
bool counts_casts(const LinearPaths& paths);

/// The operand as the low path of its product sees it; evidence goes to the product, or to both, and to `counts` where
/// there is no hook.
LowOperand low_operand(LinearPaths& paths, const OperandUse& use, const at::Tensor& matrix,
                       CastCounts* counts = nullptr);

/// The evidence of a layer that takes a cast which was counted for another one.
void add_evidence(LinearPaths& paths, const OperandUse& use, const CastCounts& counts, const c10::Device& device);

/// The low product of two operands, [m, n], of this type.
at::Tensor low_product(const LinearPaths& paths, Product product, const LowOperand& left, const LowOperand& right,
                       at::ScalarType type);

/// What the low path remembers must go on whatever path is taken: takes in a matrix, unless its cast for `product`
/// will.
void observe(LinearPaths& paths, Product product, std::size_t place, const at::Tensor& matrix);

/// A seed of its own for each layer, step, micro-batch, product and purpose: recomputation finds the same one again.
std::uint64_t seed_of(const LinearPaths& paths, Product product, std::size_t purpose);

}  // namespace gnmr::nn

// SPDX-License-Identifier: Apache-2.0
// Operands of a layer's GEMMs: what they are quantized to, and which amaxes and counts are taken on the way.
//
// Goals: one way to a quantized operand on every device; both sides of a matrix out of one pass where two GEMMs need
// them; hooks, statistics and amax on the way; layers with the same input (q, k and v; gate and up) share what their
// low paths make of it. Non-goals: which GEMM runs low (linear.h).
#pragma once

#include <array>
#include <cstddef>

#include "gnmr/low/front_end.h"
#include "gnmr/low/gemm.h"
#include "gnmr/low/linear_paths.h"
#include "gnmr/low/matrix.h"
#include "gnmr/low/quantize.h"

namespace gnmr::low {

/// One operand of one GEMM, and of a second GEMM that takes the same quantized matrix.
struct OperandUse {
  Product product = Product::forward;
  std::size_t place = 0;
  bool shared = false;  // with the GEMM and place below
  Product other_product = Product::forward;
  std::size_t other_place = 0;
};

/// Each operand, by the GEMM that quantizes it first and the one that may take the same.
inline constexpr OperandUse kInputUse{
    .product = Product::forward, .place = 0, .other_product = Product::weight_gradient, .other_place = 1};
inline constexpr OperandUse kWeightUse{
    .product = Product::forward, .place = 1, .other_product = Product::input_gradient, .other_place = 1};
inline constexpr OperandUse kGradientUse{
    .product = Product::input_gradient, .place = 0, .other_product = Product::weight_gradient, .other_place = 0};

/// Whether one quantized matrix can be what two GEMMs need. Where a rule depends on the direction that takes both sides
/// out of one pass, which FP8 data have.
bool can_share_cast(const LinearPaths& paths, const OperandUse& use, const Matrix& matrix);

/// What quantizing did to the values, where a layer's evidence asks for it.
struct CastCounts {
  bool counted = false;
  formats::Statistics on_host = {};                       // where nothing is on the device
  std::array<const formats::Statistics*, 2> on_device{};  // the GEMM's and the other one's; until the next step
};

/// Whether a layer's quantization is counted in this pass.
bool counts_casts(const LinearPaths& paths);

/// The operand as the low path of its GEMM sees it; evidence goes to the GEMM, or to both, and to `counts` where there
/// is no hook.
LowOperand low_operand(const FrontEnd& front_end, LinearPaths& paths, const OperandUse& use, const Matrix& matrix,
                       CastCounts* counts = nullptr);

/// The low GEMM of two operands, [m, n], of this type.
Matrix low_product(const FrontEnd& front_end, const LinearPaths& paths, Product product, const LowOperand& left,
                   const LowOperand& right, Type type);

/// A low result of a GEMM as a laboratory leaves it.
Matrix after_gemm(const LinearPaths& paths, Product product, const Matrix& result);

/// The result of a GEMM, [m, n], by rules without a state, as a unit in recovery may run it: nothing is measured,
/// shared or changed by a hook.
Matrix product_by_rules(const FrontEnd& front_end, const LinearPaths& paths, Product product,
                        const recipes::GemmRules& rules, const Matrix& left, const Matrix& right);

/// The low path's state must be updated whatever path is taken: takes in a matrix, unless its quantization for
/// `product` will.
void observe(const FrontEnd& front_end, LinearPaths& paths, Product product, std::size_t place, const Matrix& matrix);

/// What layers with one input share of it. The front end knows which layers these are, and gives it up where the input
/// changes. Shared are operands that depend on the input and their rule alone: no stochastic rounding, no Hadamard
/// transform (layers have their own random numbers), no delayed scaling (their own histories), no layer with a hook.
class SharedOperands {
 public:
  /// `low_operand` of the input as [tokens, in], for a forward GEMM.
  LowOperand operand(const FrontEnd& front_end, LinearPaths& paths, const OperandUse& use, const Matrix& matrix);

  /// `save_in_8_bits` of the same.
  SavedMatrix in_8_bits(const FrontEnd& front_end, const Matrix& matrix);

  /// `project_input` of the same.
  Matrix projected(const FrontEnd& front_end, const Matrix& matrix, std::uint64_t signs);

 private:
  struct Entry {
    CastRule rule = {};
    LowOperand operand = {};
    CastCounts counts = {};
  };

  std::array<Entry, 2> entries_;  // for the forward GEMM alone, and for the weight's gradient too
  SavedMatrix bits_;
  Matrix projected_;
  std::uint64_t projected_signs_ = 0;
};

}  // namespace gnmr::low

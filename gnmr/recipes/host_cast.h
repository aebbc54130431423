// SPDX-License-Identifier: Apache-2.0
// Quantizes operands in host memory as a recipe's rules say, and what they need besides: seeds, a Hadamard matrix.
//
// Goals: the same bits whatever the number of threads; nothing but plain arrays, for backends without LibTorch.
// Non-goals: turning matrices (groups lie along the columns: a caller whose GEMM sums over rows turns the operand
// first), states of delayed scaling (delayed_states.h), GEMMs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "gnmr/core/parallel_for.h"
#include "gnmr/formats/scaling.h"
#include "gnmr/recipes/recipe.h"

namespace gnmr::recipes {

/// When and where quantization takes place: random numbers are a function of this, so that recomputation finds the
/// same.
struct CastMoment {
  std::uint64_t seed = 0;
  std::int64_t step = 0;
  std::int64_t micro_batch = 0;
  std::uint32_t layer = 0;
};

/// The seed of a GEMM's random numbers; `purpose` is the place of the operand (0, 1), or 2 for the Hadamard
/// transform that both operands share.
std::uint64_t cast_seed(const CastMoment& moment, Product product, std::size_t purpose);

/// The groups of a rule and their scales; with delayed scaling those of the matrix itself.
formats::Scaling scaling_of(const CastRule& rule);

/// One quantization of one operand.
struct HostCast {
  const CastRule& rule;
  float delayed_scale = 0;                    // with delayed scaling: the scale; 0: that of the matrix itself
  std::uint64_t seed = 0;                     // of stochastic rounding
  formats::Statistics* statistics = nullptr;  // what it does to the values is added; null: nothing is measured
};

/// Writes the dequantized values of `input`, both with rows of unit stride; `output` may be the input itself. The
/// Hadamard transform of the rule has been made.
void cast_on_host(const HostCast& cast, formats::ConstMatrix input, formats::Matrix output,
                  const ParallelFor& parallel_for);

/// The largest magnitude among the finite values; 0 where there is none.
float amax_on_host(formats::ConstMatrix matrix, const ParallelFor& parallel_for);

/// The entries, row by row, of a Hadamard matrix of this size with the sign of each row by chance, of length 1.
std::vector<float> hadamard_matrix(std::uint32_t size, std::uint64_t seed);

/// What rounding alone does to a GEMM whose operands fit their formats, as a relative error; 0: not known (integers
/// and 4-bit formats, where it depends on the data).
double expected_error(const Recipe& recipe, Product product);

}  // namespace gnmr::recipes

// SPDX-License-Identifier: Apache-2.0
// Members of one layer on tensors (gnmr/low/members.h): LibTorch takes them apart and puts them together.
#include "gnmr/low/members.h"

#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "gnmr/low/linear.h"
#include "gnmr/torch/front_end.h"
#include "torch/tensor_testing.h"

namespace gnmr::nn {
namespace {

using testing::builtin;
using testing::normal;
using testing::relative_difference;

struct GroupedPass {
  at::Tensor output, input_gradient, weight_gradient;
};

GroupedPass run_members(const low::Members& members, const at::Tensor& input, const at::Tensor& weight,
                        const at::Tensor& gradient) {
  const low::ForwardResult made = low::forward(front_end(), members, matrix_of(input), matrix_of(weight));
  // As autograd keeps it: tensors.
  std::array<low::Matrix, low::Saved::kParts> parts = made.saved.parts();
  for (low::Matrix& part : parts) part = matrix_of(tensor_of(part));
  const low::Saved saved = low::Saved::from_parts(members.layer().recipe.get(), parts);
  const low::Gradients gradients = low::backward(front_end(), members, saved, matrix_of(gradient), true, true);
  return {tensor_of(made.output), tensor_of(gradients.input), tensor_of(gradients.weight)};
}

TEST(MembersOnTensors, AreLayersOfTheirOwn) {
  constexpr std::int64_t kIn = 160, kOut = 48;
  const std::vector<std::int32_t> offsets = {0, 5, 5, 140, 141};
  constexpr std::size_t kCount = 4;
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    for (const std::string recipe : {"fp8-tensorwise", "fp8-rowwise", "fp8-deepseek", "fp8-delayed", "nvfp4"}) {
      SCOPED_TRACE(recipe + ' ' + c10::toString(type));
      std::vector<low::LinearPaths> members(kCount);
      const auto loaded = builtin(recipe);
      for (std::size_t member = 0; member < kCount; ++member) {
        members[member].recipe = loaded;
        members[member].layer = static_cast<std::uint32_t>(member);
        members[member].low.fill(true);
        members[member].low[member % 3] = false;
        members[member].comparison = low::Comparison::projected;
      }
      std::vector<low::LinearPaths> layers = members;
      // A matrix with gaps, as a slice is.
      const at::Tensor input = normal({141, 2 * kIn}, 1).to(type).narrow(1, kIn, kIn);
      const at::Tensor weight = normal({std::int64_t{kCount}, kOut, kIn}, 2).to(type);
      const at::Tensor gradient = normal({141, kOut}, 3).to(type);
      const GroupedPass all = run_members(low::Members(members, {offsets}), input, weight.flatten(0, 1), gradient);
      const at::Tensor weight_gradients = all.weight_gradient.view(weight.sizes());
      for (std::size_t member = 0; member < kCount; ++member) {
        const auto index = static_cast<std::int64_t>(member);
        const std::int64_t first = offsets[member];
        const std::int64_t rows = offsets[member + 1] - first;
        if (rows == 0) {
          EXPECT_EQ(weight_gradients[index].count_nonzero().item<std::int64_t>(), 0);
          continue;
        }
        const GroupedPass own =
            run_members(layers[member], input.narrow(0, first, rows), weight[index], gradient.narrow(0, first, rows));
        // A library may add in another order where a matrix lies elsewhere.
        const double close = type == at::kFloat ? 1e-6 : 1e-3;
        EXPECT_LT(relative_difference(all.output.narrow(0, first, rows), own.output), close);
        EXPECT_LT(relative_difference(all.input_gradient.narrow(0, first, rows), own.input_gradient), close);
        EXPECT_LT(relative_difference(weight_gradients[index], own.weight_gradient), close);
        EXPECT_EQ(members[member].amax.step_amax, layers[member].amax.step_amax);
        for (std::size_t product = 0; product < low::kProductCount; ++product) {
          const low::ErrorSums& found = members[member].measured[product].error;
          const low::ErrorSums& expected = layers[member].measured[product].error;
          EXPECT_EQ(found.measured, expected.measured);
          EXPECT_NEAR(found.difference, expected.difference, 1e-3 * expected.difference);
        }
      }
    }
  }
}

}  // namespace
}  // namespace gnmr::nn

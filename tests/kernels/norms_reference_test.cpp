// SPDX-License-Identifier: Apache-2.0
#include "gnmr/kernels/norms_reference.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace gnmr::kernels {
namespace {

TEST(ReferenceSums, AddUpASeriesWhoseSumIsKnown) {
  // 1 to 200: bfloat16 holds these exactly. The sum of their squares is n (n + 1) (2 n + 1) / 6.
  constexpr int kCount = 200;
  std::vector<float> floats;
  std::vector<std::uint16_t> bfloats;
  for (int i = 1; i <= kCount; ++i) {
    floats.push_back(static_cast<float>(i));
    bfloats.push_back(bfloat16_of(static_cast<float>(-i)));
  }
  const double sum = kCount * (kCount + 1.0) * (2.0 * kCount + 1) / 6;
  const std::vector<std::uint16_t> halves(10, 0x4000);  // 2
  const std::vector<Slice> slices{{.data = floats.data(), .count = kCount, .unit = 2},
                                  {.data = bfloats.data(), .count = kCount, .type = ElementType::bfloat16, .unit = 0},
                                  {.data = halves.data(), .count = 10, .type = ElementType::float16, .unit = 2}};
  EXPECT_EQ(reference_sums(slices, 3), (std::vector<double>{sum, 0, sum + 40}));
}

TEST(ReferenceSums, StayFiniteWhereFloatSquaresDoNot) {
  const std::vector<float> large(3, 3e38f);
  const std::vector<float> small(3, 1e-44f);
  const std::vector<Slice> slices{{.data = large.data(), .count = 3, .unit = 0},
                                  {.data = small.data(), .count = 3, .unit = 1}};
  const std::vector<double> sums = reference_sums(slices, 2);
  const double value = static_cast<double>(small[0]);
  EXPECT_NEAR(sums[0] / 2.7e77, 1, 1e-6);
  EXPECT_EQ(sums[1], 3 * value * value);
  EXPECT_GT(sums[1], 0);
}

TEST(ReferenceGate, IsTorchsClipping) {
  // torch.nn.utils.clip_grad_norm_ of [3, 4] with max_norm 1: norm 5, gradients 0.5999999, 0.7999998.
  const std::vector<double> sums{9, 16};
  const Gate gate = reference_gate(sums, 1);
  EXPECT_EQ(gate.total_norm, 5);
  EXPECT_EQ(gate.coefficient * 3, 0.5999999046325684f);
  EXPECT_EQ(gate.coefficient * 4, 0.7999998331069946f);
  EXPECT_EQ(gate.apply, 1u);
  EXPECT_EQ(reference_gate(sums, 7).coefficient, 1);
  EXPECT_EQ(reference_gate(sums, std::numeric_limits<double>::infinity()).coefficient, 1);
  EXPECT_EQ(reference_gate({}, 1).coefficient, 1);
}

TEST(ReferenceGate, IsShutWhereASumIsNotFinite) {
  for (const double odd : {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    const std::vector<double> sums{9, odd};
    EXPECT_EQ(reference_gate(sums, 1).apply, 0u);
    EXPECT_EQ(reference_gate(sums, 1).coefficient, 0);
  }
}

}  // namespace
}  // namespace gnmr::kernels

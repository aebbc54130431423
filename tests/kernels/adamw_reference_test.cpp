// SPDX-License-Identifier: Apache-2.0
#include "gnmr/kernels/adamw_reference.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "gnmr/core/error.h"

namespace gnmr::kernels {
namespace {

struct Owned {
  std::vector<float> parameter, gradient, mean, square;
  float steps = 0;

  AdamWTensor tensor(double weight_decay) {
    return {.parameter = parameter.data(),
            .gradient = gradient.data(),
            .mean = mean.data(),
            .square = square.data(),
            .steps = &steps,
            .count = parameter.size(),
            .weight_decay = weight_decay};
  }
};

constexpr AdamWSettings kSettings{.learning_rate = 0.01, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8};

TEST(ReferenceAdamW, TakesTorchsSteps) {
  // torch.optim.AdamW (2.11, float64, lr 0.01, betas 0.9 and 0.95, weight decay 0.1), five steps with half of these
  // gradients.
  Owned owned{.parameter = {1, -2, 0.5, 3}, .gradient = {0, 0, 0, 0}, .mean = {0, 0, 0, 0}, .square = {0, 0, 0, 0}};
  for (int step = 1; step <= 5; ++step) {
    owned.gradient = {0.5f * static_cast<float>(step), -0.25f, step % 2 == 0 ? 1.0f : -1.0f, 0};
    const AdamWTensor tensor = owned.tensor(0.1);
    reference_adamw({&tensor, 1}, kSettings, {.total_norm = 1, .coefficient = 0.5f, .apply = 1});
  }
  const double parameters[] = {0.9472569636868279, -1.940119884051995, 0.5118098981783111, 2.9850299700149967};
  const double means[] = {0.32860249999999996, -0.05118874999999999, -0.04185499999999999, 0.0};
  const double squares[] = {0.16427033203125013, 0.003534672851562503, 0.056554765625000045, 0.0};
  EXPECT_EQ(owned.steps, 5);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(owned.parameter[i], parameters[i], 5e-7);
    EXPECT_NEAR(owned.mean[i], means[i], 1e-7);
    EXPECT_NEAR(owned.square[i], squares[i], 1e-7);
  }
}

TEST(ReferenceAdamW, WritesBfloat16) {
  std::vector<std::uint16_t> parameter{bfloat16_of(1.0f)};
  const std::vector<std::uint16_t> gradient{bfloat16_of(2.0f)};
  float mean = 0;
  float square = 0;
  float steps = 0;
  const AdamWTensor tensor{.parameter = parameter.data(),
                           .gradient = gradient.data(),
                           .mean = &mean,
                           .square = &square,
                           .steps = &steps,
                           .count = 1,
                           .parameter_type = ElementType::bfloat16,
                           .gradient_type = ElementType::bfloat16};
  // The first step is the learning rate, whatever the gradient.
  reference_adamw({&tensor, 1}, {.learning_rate = 0.25}, {.total_norm = 1, .coefficient = 1, .apply = 1});
  EXPECT_EQ(parameter[0], bfloat16_of(0.75f));
}

TEST(ReferenceAdamW, UpdatesTheMasterCopyAndRoundsItToTheParameter) {
  // Steps that bfloat16 alone would lose: the master copy takes torch's of float32, and the parameter follows it.
  Owned alone{.parameter = {1, -2}, .gradient = {0.5f, 0.25f}, .mean = {0, 0}, .square = {0, 0}};
  Owned owned = alone;                                 // its parameter is the master copy
  std::vector<std::uint16_t> rounded{0x7fff, 0x7fff};  // NaN: not read
  AdamWTensor tensor = owned.tensor(0.1);
  tensor.master = owned.parameter.data();
  tensor.parameter = rounded.data();
  tensor.parameter_type = ElementType::bfloat16;
  const double learning_rate = 1e-4;
  for (int step = 0; step < 50; ++step) {
    const AdamWTensor plain = alone.tensor(0.1);
    reference_adamw({&plain, 1}, {.learning_rate = learning_rate}, {.total_norm = 1, .coefficient = 1, .apply = 1});
    reference_adamw({&tensor, 1}, {.learning_rate = 1, .device_learning_rate = &learning_rate},
                    {.total_norm = 1, .coefficient = 1, .apply = 1});
  }
  EXPECT_EQ(owned.parameter, alone.parameter);
  EXPECT_LT(owned.parameter[0], 0.996f);
  for (std::size_t i = 0; i < 2; ++i) EXPECT_EQ(rounded[i], bfloat16_of(owned.parameter[i]));
}

TEST(ReferenceAdamW, DoesNothingBehindAShutGateOrWithoutAGradient) {
  Owned owned{.parameter = {1}, .gradient = {NAN}, .mean = {2}, .square = {3}, .steps = 7};
  AdamWTensor tensor = owned.tensor(0.1);
  reference_adamw({&tensor, 1}, kSettings, {.total_norm = 1, .coefficient = 1, .apply = 0});
  tensor.gradient = nullptr;
  reference_adamw({&tensor, 1}, kSettings, {.total_norm = 1, .coefficient = 1, .apply = 1});
  EXPECT_EQ(owned.parameter[0], 1);
  EXPECT_EQ(owned.mean[0], 2);
  EXPECT_EQ(owned.square[0], 3);
  EXPECT_EQ(owned.steps, 7);
}

TEST(ReferenceAdamW, RefusesWhatCannotBeUpdated) {
  Owned owned{.parameter = {1, 2}, .gradient = {1, 2}, .mean = {0, 0}, .square = {0, 0}};
  const AdamWTensor good = owned.tensor(0);
  EXPECT_NO_THROW(check_tensors({&good, 1}));
  AdamWTensor bad = good;
  bad.steps = nullptr;
  EXPECT_THROW(check_tensors({&bad, 1}), Error);
  bad = good;
  bad.parameter_type = ElementType::float16;
  EXPECT_THROW(check_tensors({&bad, 1}), Error);
  bad = good;
  bad.master = good.square;  // of a float32 parameter
  EXPECT_THROW(check_tensors({&bad, 1}), Error);
  bad = good;
  bad.mean = reinterpret_cast<float*>(reinterpret_cast<std::uintptr_t>(good.mean) + 2);
  EXPECT_THROW(check_tensors({&bad, 1}), Error);
}

}  // namespace
}  // namespace gnmr::kernels

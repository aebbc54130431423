// SPDX-License-Identifier: Apache-2.0
#include "gnmr/lab/injection/outlier_transplant.h"

#include <ATen/ops/silu.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <utility>
#include <vector>

#include "gnmr/core/error.h"
#include "gnmr/torch/switchable_linear.h"
#include "io/temporary_folder.h"
#include "torch/tensor_testing.h"

namespace gnmr::lab {
namespace {

using nn::testing::builtin;
using nn::testing::normal;

using Named = std::vector<std::pair<std::string, at::Tensor>>;

/// A gated feed-forward layer of 16 features and 24 channels.
struct SwiGlu {
  SwiGlu() {
    const at::NoGradGuard no_gradients;
    gate->weight.copy_(normal({24, 16}, 1) * 0.3);
    up->weight.copy_(normal({24, 16}, 2) * 0.3);
    up->bias.copy_(normal({24}, 3));
    down->weight.copy_(normal({16, 24}, 4) * 0.2);
    for (nn::SwitchableLinear layer : {gate, up, down}) layer->paths().recipe = builtin("int8");
  }

  at::Tensor inner(const at::Tensor& input) { return at::silu(gate->forward(input)) * up->forward(input); }

  /// The relative error of the low path of `down`.
  double error_of_down(const at::Tensor& input) {
    nn::LinearPaths& paths = down->paths();
    paths.begin_step();
    paths.comparison = nn::Comparison::full;
    down->forward(inner(input));
    paths.comparison = nn::Comparison::none;
    return paths.measured[0].error.error();
  }

  Named named() const {
    return {{"layers.3.up.weight", up->weight},
            {"layers.3.up.bias", up->bias},
            {"layers.3.gate.weight", gate->weight},
            {"layers.3.down.weight", down->weight}};
  }

  nn::SwitchableLinear gate{16, 24};
  nn::SwitchableLinear up{16, 24, true};
  nn::SwitchableLinear down{24, 16};
};

TEST(OutlierTransplant, TheFunctionStaysAndTheLowPathSuffers) {
  SwiGlu layer;
  const at::Tensor input = normal({40, 16}, 5);
  const at::Tensor inner = layer.inner(input).detach();
  const at::Tensor output = layer.down->forward(inner).detach();
  const double error = layer.error_of_down(input);
  transplant_outliers(layer.named(), {.channels = 3, .factor = 64});
  const at::Tensor larger = layer.inner(input).detach();
  for (std::int64_t channel = 0; channel < 24; ++channel) {
    const double factor = std::set<std::int64_t>{4, 12, 20}.contains(channel) ? 64 : 1;
    EXPECT_TRUE(at::equal(larger.select(1, channel), inner.select(1, channel) * factor)) << channel;
  }
  EXPECT_TRUE(at::equal(layer.down->forward(larger), output)) << "a power of two is exact";
  EXPECT_GT(error, 0.001);
  EXPECT_GT(layer.error_of_down(input), 10 * error);
}

TEST(OutlierTransplant, AnyFactorIsExactToRounding) {
  SwiGlu layer;
  const at::Tensor input = normal({40, 16}, 5);
  const at::Tensor output = layer.down->forward(layer.inner(input)).detach();
  transplant_outliers(layer.named(), {.channels = 24, .factor = 30});
  EXPECT_LT(nn::testing::relative_difference(layer.down->forward(layer.inner(input)), output), 1e-6);
}

TEST(OutlierTransplant, TheOptimizersTensorsGoWithTheirWeights) {
  Named tensors;
  for (const char* const name : {"a.up.weight", "a.down.weight", "a.down.bias", "embed.weight"}) {
    for (const char* const part : {"", ".exp_avg", ".exp_avg_sq", ".master", ".step"}) {
      tensors.emplace_back(std::string(name) + part, at::ones({2, 2}));
    }
  }
  transplant_outliers(tensors, {.channels = 1, .factor = 4});
  // The one channel of two is the second: a row of up, a column of down.
  for (const auto& [name, tensor] : tensors) {
    const bool of_up = name.starts_with("a.up.weight");
    const bool has_part = (of_up || name.starts_with("a.down.weight")) && !name.ends_with(".step");
    double factor = name.ends_with("_sq") ? 1.0 / 16 : name.ends_with("_avg") ? 1.0 / 4 : 4;
    if (!of_up) factor = 1 / factor;
    EXPECT_EQ(tensor[0][0].item<double>(), 1) << name;
    EXPECT_EQ(tensor[1][1].item<double>(), has_part ? factor : 1) << name;
    EXPECT_EQ(tensor[1][0].item<double>(), has_part && of_up ? factor : 1) << name;
    EXPECT_EQ(tensor[0][1].item<double>(), has_part && !of_up ? factor : 1) << name;
  }
}

TEST(OutlierTransplant, RefusesWhatHasNoSuchLayers) {
  const Named others{{"layers.0.q.weight", at::ones({4, 4})}};
  EXPECT_NE(test::error_of<Error>([&] { transplant_outliers(others, {}); }).find("no layers named up and down"),
            std::string::npos);
  const Named small{{"layers.0.up.weight", at::ones({3, 4})}};
  EXPECT_NE(test::error_of<Error>([&] { transplant_outliers(small, {.channels = 4}); }).find("at least 4 channels"),
            std::string::npos);
}

}  // namespace
}  // namespace gnmr::lab

// SPDX-License-Identifier: Apache-2.0
// The layer with the smallest front end: no tensor library is needed for anything. Its bits are compared with
// LibTorch's and Python's in tests/torch and tests/python.
#include "gnmr/low/linear.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "low/plain_front_end.h"

namespace gnmr::low {
namespace {

using testing::PlainFrontEnd;

constexpr std::int64_t kTokens = 40, kIn = 160, kOut = 24;

struct Bench {
  explicit Bench(const std::string& recipe) {
    paths.recipe = std::make_shared<const Recipe>(recipes::load_recipe(recipe));
    paths.low.fill(true);
  }

  Matrix random(std::int64_t rows, std::int64_t columns) {
    return front_end.made(rows, columns, [&](std::int64_t, std::int64_t) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      return static_cast<float>(static_cast<std::int32_t>(state >> 32)) * 0x1p-31f;
    });
  }

  /// Forward and backward; what is kept between goes through `Saved::parts`, as front ends keep it.
  std::array<Matrix, 3> run() {
    const ForwardResult made = forward(front_end, paths, input, weight);
    const Saved saved = Saved::from_parts(paths.recipe.get(), made.saved.parts());
    const Gradients gradients = backward(front_end, paths, saved, gradient, true, true);
    return {made.output, gradients.input, gradients.weight};
  }

  PlainFrontEnd front_end;
  LinearPaths paths;
  std::uint64_t state = 1;
  Matrix input = random(kTokens, kIn), weight = random(kOut, kIn), gradient = random(kTokens, kOut);
};

double difference(const Bench& bench, const Matrix& a, const Matrix& b) {
  return std::sqrt(bench.front_end.square_by_operators(bench.front_end.subtract(a, b)) /
                   bench.front_end.square_by_operators(b));
}

TEST(LowLinear, HighIsTheFrontEndsOwnAndLowIsNearIt) {
  for (const std::string recipe : {"fp8-tensorwise", "fp8-rowwise", "fp8-deepseek", "mxfp8", "fp8-delayed"}) {
    Bench bench(recipe);
    const auto low = bench.run();
    bench.paths.low.fill(false);
    const auto high = bench.run();
    const Matrix expected = bench.front_end.multiply(bench.input, bench.weight.transposed());
    EXPECT_EQ(difference(bench, high[0], expected), 0) << recipe;
    for (std::size_t product = 0; product < kProductCount; ++product) {
      const double off = difference(bench, low[product], high[product]);
      EXPECT_GT(off, 1e-3) << recipe << ' ' << product;
      EXPECT_LT(off, 0.1) << recipe << ' ' << product;
    }
  }
}

TEST(LowLinear, Fp8DataStandForTheNumbers) {
  for (const std::string recipe : {"fp8-tensorwise", "fp8-rowwise", "fp8-deepseek", "fp8-delayed"}) {
    Bench numbers(recipe);
    Bench codes(recipe);
    for (int step = 0; step < 2; ++step) {
      const auto expected = numbers.run();
      set_codes_on_host(true);
      const auto found = codes.run();
      set_codes_on_host(false);
      for (std::size_t product = 0; product < kProductCount; ++product) {
        EXPECT_LT(difference(codes, found[product], expected[product]), 1e-6) << recipe << ' ' << product;
      }
      numbers.paths.end_step();
      codes.paths.end_step();
      EXPECT_EQ(codes.paths.amax.step_amax, numbers.paths.amax.step_amax) << recipe;
    }
  }
}

TEST(LowLinear, TrialAndPatrolMeasureTheSameErrors) {
  Bench bench("fp8-tensorwise");
  bench.paths.comparison = Comparison::projected;
  bench.run();
  const auto patrolled = bench.paths.measured;
  bench.paths.begin_step();
  bench.paths.comparison = Comparison::full;
  bench.paths.low.fill(false);
  bench.run();
  for (std::size_t product = 0; product < kProductCount; ++product) {
    const double full = bench.paths.measured[product].error.error();
    EXPECT_GT(full, 0.01);
    EXPECT_NEAR(patrolled[product].error.error() / full, 1, 0.35) << product;
  }
}

TEST(LowLinear, LayersWithOneInputQuantizeItOnce) {
  Bench bench("fp8-tensorwise");
  SharedOperands shared;
  const ForwardResult first = forward(bench.front_end, bench.paths, bench.input, bench.weight, {.shared = &shared});
  const ForwardResult second = forward(bench.front_end, bench.paths, bench.input, bench.weight, {.shared = &shared});
  EXPECT_TRUE(first.saved.low_input.values.is_same(second.saved.low_input.values));
  EXPECT_EQ(difference(bench, second.output, forward(bench.front_end, bench.paths, bench.input, bench.weight).output),
            0);
}

}  // namespace
}  // namespace gnmr::low

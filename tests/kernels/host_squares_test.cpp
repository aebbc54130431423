// SPDX-License-Identifier: Apache-2.0
#include "gnmr/kernels/host_squares.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <thread>
#include <vector>

#include "gnmr/core/error.h"
#include "gnmr/kernels/norms_reference.h"

namespace gnmr::kernels {
namespace {

/// Arrays of every type with some bits by chance, and slices of them with odd beginnings and lengths.
struct SampleSlices {
  std::vector<float> floats;
  std::vector<std::uint16_t> halves;
  std::vector<Slice> slices;

  explicit SampleSlices(std::uint32_t seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    for (int index = 0; index < 70000; ++index) floats.push_back(normal(random));
    // Finite halves of both kinds: the exponent is never the largest.
    for (int index = 0; index < 70000; ++index) halves.push_back(static_cast<std::uint16_t>(random() & 0x83ffu));
    slices = {{floats.data(), floats.size(), ElementType::float32, 1},
              {floats.data() + 3, 17, ElementType::float32, 0},
              {halves.data() + 1, halves.size() - 1, ElementType::bfloat16, 2},
              {halves.data(), halves.size(), ElementType::float16, 3},
              {halves.data() + 5, 16384, ElementType::float16, 0},
              {nullptr, 9, ElementType::float32, 4}};
  }
};

void on_three_threads(std::size_t count, const WorkPart& part) {
  std::vector<std::thread> threads;
  for (std::size_t thread = 0; thread < 3; ++thread) {
    threads.emplace_back([&, thread] { part(count * thread / 3, count * (thread + 1) / 3); });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(HostSquares, AreThoseOfTheReference) {
  const SampleSlices sample(1);
  std::vector<double> sums(6, -1.0);
  sum_squares_on_host(sample.slices, sums, run_alone);
  // The reference reads every slice; the last one has no address.
  const std::vector<double> expected = reference_sums(std::span(sample.slices).first(5), 6);
  for (std::size_t unit = 0; unit < sums.size(); ++unit) {
    EXPECT_NEAR(sums[unit], expected[unit], 1e-13 * expected[unit]) << unit;
  }
}

TEST(HostSquares, DoNotDependOnThreads) {
  const SampleSlices sample(2);
  std::vector<double> alone(6);
  std::vector<double> shared(6);
  sum_squares_on_host(sample.slices, alone, run_alone);
  sum_squares_on_host(sample.slices, shared, on_three_threads);
  EXPECT_EQ(alone, shared);
  EXPECT_EQ(sum_squares_on_host(sample.slices[0]), alone[1]);
}

TEST(HostSquares, EveryHalfIsRead) {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const double value = value_of_half(half);
    const double square = sum_squares_on_host({&half, 1, ElementType::float16, 0});
    if (std::isnan(value)) {
      ASSERT_TRUE(std::isnan(square)) << bits;
    } else {
      ASSERT_EQ(square, value * value) << bits;
    }
  }
}

TEST(HostSquares, FiniteExactlyWhereTheGradientIs) {
  std::vector<float> values(20000, 3e38f);
  const Slice slice{values.data(), values.size(), ElementType::float32, 0};
  EXPECT_TRUE(std::isfinite(sum_squares_on_host(slice)));
  values[19999] = std::numeric_limits<float>::infinity();
  EXPECT_TRUE(std::isinf(sum_squares_on_host(slice)));
  values[7] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(std::isnan(sum_squares_on_host(slice)));
}

TEST(HostSquares, RefuseWhatCannotBe) {
  const float value = 1;
  double sum = 5;
  const Slice beyond{&value, 1, ElementType::float32, 1};
  EXPECT_THROW(sum_squares_on_host(std::span(&beyond, 1), std::span(&sum, 1), run_alone), Error);
  EXPECT_EQ(sum, 5);
}

}  // namespace
}  // namespace gnmr::kernels

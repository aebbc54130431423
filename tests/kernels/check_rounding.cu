// SPDX-License-Identifier: Apache-2.0
// Rounding to formats on the device against gnmr/formats on the host, bit for bit but for the bits of NaNs.
#include <cmath>
#include <limits>

#include "core/random_run.h"
#include "gnmr/kernels/rounding.h"
#include "kernels/check.h"

namespace gnmr::kernels::testing {
namespace {

using formats::Format;
using formats::Scaling;

/// Numbers over many binades, with zeros of both signs; `unusual`: NaN and infinities here and there.
std::vector<float> sample(std::size_t count, bool unusual, gnmr::testing::Random& random) {
  std::vector<float> values(count);
  for (float& value : values) {
    const double size = std::ldexp(random.uniform(), static_cast<int>(random.below(24)) - 16);
    value = static_cast<float>(random.below(2) == 0 ? size : -size);
    if (random.below(50) == 0) value = random.below(2) == 0 ? 0.0f : -0.0f;
    if (!unusual || random.below(700) != 0) continue;
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    value = random.below(3) == 0   ? std::numeric_limits<float>::quiet_NaN()
            : random.below(2) == 0 ? kInfinity
                                   : -kInfinity;
  }
  return values;
}

bool same_numbers(const std::vector<float>& a, const std::vector<float>& b) {
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i]) != std::isnan(b[i])) return false;
    if (!std::isnan(a[i]) && std::memcmp(&a[i], &b[i], sizeof(float)) != 0) return false;
  }
  return a.size() == b.size();
}

Scaling turned(Scaling scaling) {
  std::swap(scaling.group_rows, scaling.group_cols);
  return scaling;
}

}  // namespace

void check_rounding(Checks& checks) {
  gnmr::testing::Random random(5);
  constexpr Format kFormats[] = {Format::e4m3,     Format::e5m2, Format::e3m2, Format::e2m3, Format::e2m1,
                                 Format::bfloat16, Format::int8, Format::int4, Format::int3};
  const Scaling given = formats::given_scale(0.37f);
  const Scaling scalings[] = {formats::kNoScaling,      given,
                              formats::kTensorScaling,  formats::kRowScaling,
                              formats::kTileScaling,    formats::kBlockScaling,
                              formats::kMxFloorScaling, formats::kMxRoundUpScaling,
                              formats::kNvfp4Scaling};
  const std::size_t large = checks.is_small() ? 70 : 1000;
  const std::size_t shapes[][2] = {{1, 1}, {33, 257}, {130, large}, {large, 48}};
  std::size_t compared = 0;
  std::string trouble;
  for (const Format format : kFormats) {
    for (std::size_t kind = 0; kind < 2 * std::size(scalings); ++kind) {
      const Scaling scaling = kind % 2 == 0 ? scalings[kind / 2] : turned(scalings[kind / 2]);
      for (const auto& [rows, columns] : shapes) {
        for (const bool unusual : {false, true}) {
          const formats::Overflow overflow =
              random.below(2) == 0 ? formats::Overflow::saturate : formats::Overflow::non_finite;
          const std::vector<float> values = sample(rows * columns, unusual, random);
          std::vector<float> expected(values.size());
          formats::fake_quantise({.format = format, .overflow = overflow}, scaling,
                                 {values.data(), rows, columns, columns}, {expected.data(), rows, columns, columns});
          OnDevice<float> from(values);
          OnDevice<float> to(values.size());
          const RoundingTask task{from.data(), to.data(), rows, columns, format, overflow, scaling};
          OnDevice<std::uint8_t> workspace(rounding_workspace_bytes(task));
          round_on_device(task, workspace.data(), nullptr);
          must(cudaDeviceSynchronize());
          ++compared;
          if (!same_numbers(to.get(), expected) && trouble.empty()) {
            trouble = "format " + std::to_string(static_cast<int>(format)) + ", scaling " + std::to_string(kind) +
                      ", " + std::to_string(rows) + " x " + std::to_string(columns) + (unusual ? ", with NaN" : "");
          }
        }
      }
    }
  }
  checks.report("rounding of " + std::to_string(compared) + " matrices", trouble);
}

}  // namespace gnmr::kernels::testing

// SPDX-License-Identifier: Apache-2.0
// Delayed scales on the device against gnmr/formats, bit for bit, over many steps.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "core/random_run.h"
#include "gnmr/kernels/delayed_scales_reference.h"
#include "kernels/check.h"

namespace gnmr::kernels::testing {
namespace {

using formats::AmaxChoice;
using formats::DelayedState;
using formats::Format;
using gnmr::testing::Random;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

bool same_states(const std::vector<DelayedState>& a, const std::vector<DelayedState>& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (!same_bits(a[i].amax_history, b[i].amax_history) || a[i].observations != b[i].observations ||
        a[i].refreshes != b[i].refreshes || a[i].refresh_debt != b[i].refresh_debt ||
        std::bit_cast<std::uint32_t>(a[i].scale) != std::bit_cast<std::uint32_t>(b[i].scale)) {
      return false;
    }
  }
  return true;
}

bool same_totals(const std::vector<ErrorTotals>& a, const std::vector<ErrorTotals>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const ErrorTotals& one, const ErrorTotals& other) {
    return one.difference == other.difference && one.reference == other.reference && one.measured == other.measured;
  });
}

std::vector<DelayedTensor> random_tensors(Random& random, std::size_t count, std::size_t amaxes) {
  std::vector<DelayedTensor> tensors;
  for (std::size_t i = 0; i < count; ++i) {
    tensors.push_back({.rule = {.format = random.pick({Format::e4m3, Format::e5m2, Format::e2m1, Format::int8}),
                                .history_length = random.pick<std::uint32_t>({1, 2, 5, 16, 31, 33, 70}),
                                .update_interval = random.pick<std::uint32_t>({1, 1, 2, 7}),
                                .choice = random.pick({AmaxChoice::largest, AmaxChoice::newest}),
                                .margin = random.pick({0, 0, 1, 3, -2, 200, -200})},
                       .amax = static_cast<std::uint32_t>(random.below(amaxes)),
                       .totals = static_cast<std::uint32_t>(random.below(count))});
  }
  return tensors;
}

float random_amax(Random& random) {
  if (random.chance(0.85)) return static_cast<float>(std::exp2(random.uniform(-10, 10)));
  return random.pick({-1.0f, -1.0f, 0.0f, -0.0f, kInfinity, std::nanf(""), 1e-42f, 1e-30f, 3.3e38f});
}

std::vector<float> scales_on(const DelayedScales& delayed, std::size_t count) {
  std::vector<float> scales(count);
  must(cudaMemcpy(scales.data(), delayed.scales(), count * sizeof(float), cudaMemcpyDeviceToHost));
  return scales;
}

/// Steps of a random run; every seventh is saved and loaded into a new object.
std::string check_run(Random& random, std::size_t count, int steps) {
  const std::size_t amax_count = count / 2 + 1;
  const std::vector<DelayedTensor> tensors = random_tensors(random, count, amax_count);
  std::vector<DelayedState> states(count);
  std::vector<float> scales(count, 1.0f);
  DelayedScales delayed(tensors);
  OnDevice<float> on_device(amax_count);
  OnDevice<ErrorTotals> totals_on_device(count);
  const formats::Refresh refresh{.factor = random.pick({0.0f, 1.0f, 1.25f, 3.0f}),
                                 .burst = random.pick<std::uint32_t>({1, 2, 4}),
                                 .gap = random.pick<std::uint32_t>({0, 1, 3, 10})};
  for (int step = 0; step < steps; ++step) {
    std::vector<float> amaxes(amax_count);
    for (float& amax : amaxes) amax = step < 3 && random.chance(0.5) ? -1.0f : random_amax(random);
    on_device.put(amaxes);
    if (step < 6) {
      delayed.first_scales(on_device.data(), nullptr);
      reference_first_scales(tensors, states, amaxes, scales);
      const auto tensor = static_cast<std::uint32_t>(random.below(count));
      delayed.first_scale(tensor, on_device.data(), nullptr);
      const DelayedTensor alone{.rule = tensors[tensor].rule, .amax = 0};
      reference_first_scales({&alone, 1}, {&states[tensor], 1}, amaxes, {&scales[tensor], 1});
      must(cudaDeviceSynchronize());
      if (!same_bits(scales_on(delayed, count), scales)) return "first scales of step " + std::to_string(step);
    }
    std::vector<ErrorTotals> totals(count, ErrorTotals{1.5, 2, 3});
    totals_on_device.put(totals);
    delayed.leave_out_answered(on_device.data(), refresh, totals_on_device.data(), nullptr);
    reference_leave_out_answered(tensors, amaxes, states, refresh, totals);
    must(cudaDeviceSynchronize());
    if (!same_totals(totals_on_device.get(), totals)) return "errors that step " + std::to_string(step) + " answers";
    delayed.observe(on_device.data(), nullptr, refresh);
    reference_observe(tensors, amaxes, states, scales, refresh);
    must(cudaDeviceSynchronize());
    if (!same_bits(scales_on(delayed, count), scales)) return "scales of step " + std::to_string(step);
    if (!same_states(delayed.save(nullptr), states)) return "states of step " + std::to_string(step);
    if (step % 7 == 6) {
      DelayedScales loaded(tensors);
      loaded.load(states, nullptr);
      delayed = std::move(loaded);
      for (std::size_t i = 0; i < count; ++i) scales[i] = states[i].scale;
    }
  }
  return "";
}

void check_amaxes(Checks& checks) {
  const OnDevice<float> amaxes(700);
  clear_amaxes(amaxes.data(), 699, nullptr);
  std::vector<float> found(699, 2.0f);
  found[3] = std::nanf("");
  found[4] = 0.0f;
  OnDevice<float> on_device(found);
  keep_larger(on_device.data(), amaxes.data(), 600, nullptr);
  found[5] = 1.0f;
  found[6] = kInfinity;
  on_device.put(found);
  keep_larger(on_device.data(), amaxes.data(), 600, nullptr);
  must(cudaDeviceSynchronize());
  std::vector<float> expected(600, 2.0f);
  expected[3] = -1.0f;
  expected[4] = 0.0f;
  expected[6] = kInfinity;
  expected.insert(expected.end(), 99, -1.0f);
  expected.push_back(std::bit_cast<float>(0xeeeeeeeeu));
  checks.expect("amaxes that were seen, and the larger of two", same_bits(amaxes.get(), expected));
}

}  // namespace

void check_delayed_scales(Checks& checks) {
  Random random(71);
  std::string trouble;
  for (const std::size_t count : {1, 9, 500}) {
    if (trouble.empty()) trouble = check_run(random, count, checks.is_small() ? 8 : 100);
  }
  checks.report("delayed scales, saved and loaded", trouble);
  DelayedScales none({});
  none.observe(nullptr, nullptr);
  none.first_scales(nullptr, nullptr);
  checks.expect("delayed scales of no tensor", none.save(nullptr).empty());
  check_amaxes(checks);
}

}  // namespace gnmr::kernels::testing

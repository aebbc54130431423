// SPDX-License-Identifier: Apache-2.0
#include "gnmr/lab/injection/fault_hook.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <set>

#include "gnmr/core/error.h"
#include "torch/tensor_testing.h"

namespace gnmr::lab {
namespace {

using nn::LowPathCall;
using nn::testing::normal;
using nn::testing::same_bits;
using recipes::Operand;
using recipes::Product;

constexpr std::uint32_t kFaulty = 2;
constexpr std::int64_t kFirst = 10;
constexpr std::int64_t kSteps = 5;
constexpr Product kProducts[] = {Product::forward, Product::input_gradient, Product::weight_gradient};

PlannedFault fault_of(FaultKind kind, bool transient = false) {
  const std::int64_t steps = transient ? 1 : kSteps;
  return {.step_first = kFirst,
          .step_last = kFirst + steps - 1,
          .steps = steps,
          .layer = kFaulty,
          .kind = kind,
          .transient = transient};
}

FaultHook hook_of(FaultKind kind, bool transient = false, double strength = 64) {
  const PlannedFault fault = fault_of(kind, transient);
  return FaultHook({&fault, 1}, {.strength = strength, .seed = 7});
}

LowPathCall call_of(Product product, std::int64_t step = kFirst, bool rerun = false) {
  return {.layer = kFaulty, .product = product, .step = step, .micro_batch = 1, .rerun = rerun};
}

at::Tensor sample(Operand operand) { return normal({32, 24}, 20 + static_cast<std::uint64_t>(operand)); }

/// One place that a hook is asked about.
struct Place {
  std::string name;
  std::function<at::Tensor(FaultHook& hook, const LowPathCall& call, const at::Tensor& matrix)> ask;
  Product product = Product::forward;
  at::Tensor matrix;
};

/// Every place of the three products: `in_cast forward input`, `after_product forward`.
std::vector<Place> all_places() {
  std::vector<Place> places;
  for (const Product product : kProducts) {
    const std::string of = ' ' + std::string(recipes::to_string(product));
    for (const Operand operand : recipes::operands_of(product)) {
      const std::string both = of + ' ' + std::string(recipes::to_string(operand));
      const at::Tensor matrix = sample(operand);
      places.push_back({"before_cast" + both,
                        [=](FaultHook& hook, const LowPathCall& call, const at::Tensor& given) {
                          return hook.before_cast(call, operand, given);
                        },
                        product, matrix});
      places.push_back({"in_cast" + both,
                        [=](FaultHook& hook, const LowPathCall& call, const at::Tensor& given) {
                          return hook.in_cast(call, operand, given);
                        },
                        product, matrix});
      places.push_back({"after_cast" + both,
                        [=](FaultHook& hook, const LowPathCall& call, const at::Tensor& given) {
                          return hook.after_cast(call, operand, given);
                        },
                        product, matrix});
      places.push_back({"observed" + both,
                        [=](FaultHook& hook, const LowPathCall& call, const at::Tensor& given) {
                          return hook.observed(call, operand, given);
                        },
                        product, matrix});
    }
    places.push_back({"after_product" + of,
                      [](FaultHook& hook, const LowPathCall& call, const at::Tensor& given) {
                        return hook.after_product(call, given);
                      },
                      product, normal({32, 24}, 30)});
  }
  return places;
}

/// Where each kind acts: as docs/faults.md has it.
const std::map<FaultKind, std::vector<std::string>>& places_of_kinds() {
  static const std::vector<std::string> input{"in_cast forward input", "in_cast weight_gradient input"};
  static const std::map<FaultKind, std::vector<std::string>> places{
      {FaultKind::input_bad, {"before_cast forward input", "before_cast weight_gradient input"}},
      {FaultKind::saturate, input},
      {FaultKind::overflow, input},
      {FaultKind::gradient_overflow,
       {"in_cast input_gradient output_gradient", "in_cast weight_gradient output_gradient"}},
      {FaultKind::stale_scale,
       {"in_cast forward input", "in_cast forward weight", "in_cast input_gradient weight",
        "in_cast weight_gradient input"}},
      {FaultKind::stuck_amax, input},
      {FaultKind::flush, input},
      {FaultKind::drift, input},
      {FaultKind::bit_flip, {"after_cast forward input", "after_cast weight_gradient input"}},
      {FaultKind::wrong_rows,
       {"after_product forward", "after_product input_gradient", "after_product weight_gradient"}},
      {FaultKind::nan_gradient, {"after_product input_gradient", "after_product weight_gradient"}},
      {FaultKind::forward_overflow, {"after_product forward"}},
      {FaultKind::cached_weight, {"in_cast forward weight", "in_cast input_gradient weight"}},
      {FaultKind::missed_amax, {"observed input_gradient output_gradient", "observed weight_gradient output_gradient"}},
      {FaultKind::wrong_amax, {}},  // where no other layer has observed anything
      {FaultKind::bad_batch, {}},
  };
  return places;
}

bool same_tensor(const at::Tensor& a, const at::Tensor& b) { return a.is_same(b) && a.data_ptr() == b.data_ptr(); }

TEST(FaultHook, EachKindActsWhereItIsSaidTo) {
  ASSERT_EQ(places_of_kinds().size(), fault_kinds().size());
  for (const auto& [kind, expected] : places_of_kinds()) {
    FaultHook hook = hook_of(kind);
    std::vector<std::string> changed;
    for (const Place& place : all_places()) {
      const at::Tensor before = place.matrix.clone();
      const at::Tensor after = place.ask(hook, call_of(place.product), place.matrix);
      EXPECT_TRUE(same_bits(place.matrix, before)) << place.name << " was changed in place";
      if (same_tensor(after, place.matrix)) continue;
      EXPECT_FALSE(after.is_alias_of(place.matrix));
      EXPECT_FALSE(same_bits(after, before)) << to_string(kind) << " does nothing at " << place.name;
      changed.push_back(place.name);
    }
    std::vector<std::string> sorted = expected;
    std::sort(sorted.begin(), sorted.end());
    std::sort(changed.begin(), changed.end());
    EXPECT_EQ(changed, sorted) << to_string(kind);
  }
}

TEST(FaultHook, OtherLayersAndStepsGetTheirOwnTensor) {
  for (const FaultKindSpec& spec : fault_kinds()) {
    FaultHook hook = hook_of(spec.kind);
    for (const Place& place : all_places()) {
      for (LowPathCall call : {call_of(place.product, kFirst - 1), call_of(place.product, kFirst + kSteps)}) {
        EXPECT_TRUE(same_tensor(place.ask(hook, call, place.matrix), place.matrix));
        for (const std::uint32_t layer : {0U, 1U, 3U, 1000U}) {
          call = call_of(place.product);
          call.layer = layer;
          EXPECT_TRUE(same_tensor(place.ask(hook, call, place.matrix), place.matrix));
        }
      }
    }
  }
}

TEST(FaultHook, StickyFaultsAreTheSameInARerunAndTransientOnesGone) {
  for (const FaultKindSpec& spec : fault_kinds()) {
    if (spec.site == FaultSite::run) continue;
    FaultHook sticky = hook_of(spec.kind);
    FaultHook transient = hook_of(spec.kind, true);
    for (const Place& place : all_places()) {
      const at::Tensor first = place.ask(sticky, call_of(place.product), place.matrix);
      EXPECT_TRUE(same_bits(place.ask(sticky, call_of(place.product, kFirst, true), place.matrix), first));
      if (is_reenacted_bug(spec.kind)) continue;
      const at::Tensor once = place.ask(transient, call_of(place.product), place.matrix);
      EXPECT_EQ(same_tensor(once, place.matrix), same_tensor(first, place.matrix));
      EXPECT_TRUE(same_tensor(place.ask(transient, call_of(place.product, kFirst, true), place.matrix), place.matrix));
      EXPECT_TRUE(same_tensor(place.ask(transient, call_of(place.product, kFirst + 1), place.matrix), place.matrix));
    }
  }
}

/// A loop over the elements, given the largest of them.
at::Tensor by_elements(const at::Tensor& matrix, const std::function<float(float value, float largest)>& change) {
  at::Tensor result = matrix.clone();
  float* const data = result.mutable_data_ptr<float>();
  float largest = 0;
  for (std::int64_t i = 0; i < result.numel(); ++i) largest = std::max(largest, std::fabs(data[i]));
  for (std::int64_t i = 0; i < result.numel(); ++i) data[i] = change(data[i], largest);
  return result;
}

float cut(float value, float limit) { return value > limit ? limit : value < -limit ? -limit : value; }

TEST(FaultHook, KindsWithoutChanceAreWhatALoopMakes) {
  using Change = std::function<float(float value, float largest)>;
  const Change cuts = [](float value, float largest) { return cut(value, largest / 16); };
  const Change multiplies = [](float value, float largest) {
    return std::fabs(value) > largest / 8 ? 16 * value : value;
  };
  const std::map<FaultKind, Change> changes{
      {FaultKind::input_bad, multiplies},
      {FaultKind::saturate, cuts},
      {FaultKind::overflow, multiplies},
      {FaultKind::gradient_overflow, multiplies},
      {FaultKind::stale_scale, cuts},
      {FaultKind::stuck_amax, [](float value, float largest) { return cut(value, largest / 4); }},
      {FaultKind::flush, [](float value, float largest) { return std::fabs(value) < largest / 8 ? 0 : value; }},
  };
  for (const auto& [kind, change] : changes) {
    FaultHook hook = hook_of(kind, false, 16);
    for (const Place& place : all_places()) {
      const at::Tensor after = place.ask(hook, call_of(place.product), place.matrix);
      if (same_tensor(after, place.matrix)) continue;
      EXPECT_TRUE(same_bits(after, by_elements(place.matrix, change))) << to_string(kind) << ' ' << place.name;
    }
  }
}

TEST(FaultHook, DriftGoesFromTheLargestToItsShare) {
  // Half of it lies behind the run's end: the slope is that of the whole.
  PlannedFault fault = fault_of(FaultKind::drift);
  fault.steps = 40;
  fault.step_last = fault.step_first + 19;
  FaultHook hook({&fault, 1}, {.strength = 64, .seed = 7});
  const at::Tensor matrix = sample(Operand::input);
  for (const std::int64_t gone : {1, 2, 10, 20}) {
    const at::Tensor after = hook.in_cast(call_of(Product::forward, kFirst + gone - 1), Operand::input, matrix);
    const double share = 1 - static_cast<double>(gone) / 40 * (63.0 / 64);
    const at::Tensor expected = by_elements(
        matrix, [&](float value, float largest) { return cut(value, largest * static_cast<float>(share)); });
    EXPECT_TRUE(same_bits(after, expected)) << gone;
  }
  fault.step_last = fault.step_first + 39;
  FaultHook whole({&fault, 1}, {.strength = 64, .seed = 7});
  EXPECT_TRUE(same_bits(whole.in_cast(call_of(Product::forward, kFirst + 39), Operand::input, matrix),
                        by_elements(matrix, [](float value, float largest) { return cut(value, largest / 64); })));
}

TEST(FaultHook, AStuckScaleIsThatOfTheFirstStep) {
  const at::Tensor matrix = sample(Operand::input);
  const at::Tensor larger = 8 * matrix;
  const auto limit_of = [](const at::Tensor& after) { return after.abs().max().item<float>(); };
  const float limit = limit_of(matrix) / 8;
  FaultHook hook = hook_of(FaultKind::stuck_amax);
  EXPECT_EQ(limit_of(hook.in_cast(call_of(Product::forward), Operand::input, matrix)), limit);
  EXPECT_EQ(limit_of(hook.in_cast(call_of(Product::forward, kFirst + 1), Operand::input, larger)), limit);
  // Another process goes on with it.
  FaultHook other = hook_of(FaultKind::stuck_amax);
  other.restore(hook.save());
  EXPECT_EQ(other.save(), hook.save());
  EXPECT_EQ(limit_of(other.in_cast(call_of(Product::forward, kFirst + 2), Operand::input, larger)), limit);
  // No state is kept from one fault to the next.
  std::vector<PlannedFault> two{fault_of(FaultKind::stuck_amax), fault_of(FaultKind::stuck_amax)};
  two[1].step_first += 20;
  two[1].step_last += 20;
  FaultHook twice(two, {.strength = 64, .seed = 7});
  EXPECT_EQ(limit_of(twice.in_cast(call_of(Product::forward), Operand::input, matrix)), limit);
  EXPECT_EQ(limit_of(twice.in_cast(call_of(Product::forward, kFirst + 20), Operand::input, larger)), 8 * limit);
}

TEST(FaultHook, WhatIsNotItsOwnIsNotRestored) {
  FaultHook hook = hook_of(FaultKind::stuck_amax);
  hook.in_cast(call_of(Product::forward), Operand::input, sample(Operand::input));
  const std::string saved = hook.save();
  for (const std::string text :
       {"stuck 2 10", "stuck 3 10 1\n", "stuck -1 10 1\n", "slack 2 10 1\n", "stuck 2 10 x\n", "cached 3 10 00\n"}) {
    EXPECT_THROW(hook.restore(text), Error) << text;
    EXPECT_EQ(hook.save(), saved) << "it changed on an error";
  }
  hook.restore("");
  EXPECT_EQ(hook.save(), "");
}

TEST(FaultHook, ChanceGoesByStepMicroBatchProductLayerAndSeed) {
  for (const FaultKind kind : {FaultKind::bit_flip, FaultKind::wrong_rows, FaultKind::nan_gradient}) {
    std::vector<PlannedFault> faults{fault_of(kind), fault_of(kind)};
    faults[1].layer = 3;
    FaultHook hook(faults, {.strength = 64, .seed = 7});
    FaultHook other_seed(faults, {.strength = 64, .seed = 8});
    const at::Tensor matrix = sample(Operand::input);
    const auto ask = [&](FaultHook& asked, const LowPathCall& call) {
      return kind == FaultKind::bit_flip ? asked.after_cast(call, Operand::input, matrix)
                                         : asked.after_product(call, matrix);
    };
    const LowPathCall call = call_of(Product::weight_gradient);
    std::vector<LowPathCall> others(4, call);
    others[0].step += 1;
    others[1].micro_batch += 1;
    others[2].product = kind == FaultKind::bit_flip ? Product::forward : Product::input_gradient;
    others[3].layer = 3;
    std::vector<at::Tensor> results{ask(hook, call), ask(other_seed, call)};
    for (const LowPathCall& other : others) results.push_back(ask(hook, other));
    for (std::size_t i = 0; i < results.size(); ++i) {
      for (std::size_t j = 0; j < i; ++j) EXPECT_FALSE(same_bits(results[i], results[j])) << i << ' ' << j;
    }
  }
}

TEST(FaultHook, AnOverflowIsInfiniteWhereValuesAreLargeAndNanOnce) {
  const at::Tensor matrix = normal({32, 24}, 30);
  const at::Tensor infinite = by_elements(matrix, [](float value, float largest) {
    return std::fabs(value) > largest / 8 ? std::copysign(HUGE_VALF, value) : value;
  });
  FaultHook hook = hook_of(FaultKind::forward_overflow);
  std::set<std::int64_t> places;
  for (std::int64_t micro_batch = 0; micro_batch < 20; ++micro_batch) {
    LowPathCall call = call_of(Product::forward);
    call.micro_batch = micro_batch;
    const at::Tensor after = hook.after_product(call, matrix);
    ASSERT_EQ(after.isnan().sum().item<std::int64_t>(), 1);
    EXPECT_EQ((after == infinite).sum().item<std::int64_t>(), matrix.numel() - 1);
    EXPECT_GT(after.isinf().sum().item<std::int64_t>(), matrix.numel() / 4);
    places.insert(after.isnan().view({-1}).nonzero().item<std::int64_t>());
  }
  EXPECT_GT(places.size(), 10U);
}

TEST(FaultHook, StrengthIsTheShareThatIsHit) {
  const at::Tensor matrix = normal({512, 64}, 3);
  const auto changed_rows = [&](double strength) {
    FaultHook hook = hook_of(FaultKind::wrong_rows, false, strength);
    return (hook.after_product(call_of(Product::forward), matrix) != matrix).any(1).sum().item<std::int64_t>();
  };
  EXPECT_EQ(changed_rows(64), 64) << "an eighth";
  EXPECT_EQ(changed_rows(16), 16);
  EXPECT_EQ(changed_rows(1e6), 512);
  const auto changed_share = [&](double strength) {
    FaultHook hook = hook_of(FaultKind::bit_flip, false, strength);
    const at::Tensor after = hook.after_cast(call_of(Product::forward), Operand::input, matrix);
    EXPECT_TRUE(after.isfinite().all().item<bool>());
    return (after != matrix).to(at::kFloat).mean().item<double>();
  };
  // Some elements are hit twice.
  EXPECT_NEAR(changed_share(64), 1.0 / 16, 0.004);
  EXPECT_NEAR(changed_share(16), 1.0 / 64, 0.001);
}

}  // namespace
}  // namespace gnmr::lab

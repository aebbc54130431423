// SPDX-License-Identifier: Apache-2.0
// What can be seen of each kind in a real layer: by the evidence of its casts, by comparing products beside the step,
// and by a trial. docs/faults.md has the table.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "gnmr/lab/injection/fault_hook.h"
#include "gnmr/torch/switchable_linear.h"
#include "torch/tensor_testing.h"

namespace gnmr::lab {
namespace {

using nn::Comparison;
using nn::testing::builtin;
using nn::testing::normal;

/// The largest relative error of a cast, and of a product.
struct Seen {
  double cast = 0;
  double product = 0;
};

/// One step of a layer of the usual shape: 256 tokens.
Seen run_step(nn::LowPathHook* hook, std::int64_t step, Comparison comparison) {
  nn::SwitchableLinear layer(96, 80);
  layer->weight = layer->weight.detach().copy_(normal({80, 96}, 1) * 0.1).requires_grad_();
  auto clock = std::make_shared<nn::StepClock>();
  clock->step = step;
  clock->rerun = comparison == Comparison::full;
  nn::LinearPaths& paths = layer->paths();
  paths.recipe = builtin("fp8-tensorwise");
  paths.clock = clock;
  paths.hook = hook;
  paths.comparison = comparison;
  paths.measure_casts = true;
  paths.low.fill(comparison != Comparison::full);
  paths.begin_step();
  const at::Tensor input = normal({256, 96}, 2).requires_grad_();
  layer->forward(input).backward(normal({256, 80}, 3) * 1e-3);
  Seen seen;
  for (const nn::ProductMeasurement& measured : paths.measured) {
    const double error = measured.error.error();
    if (measured.error.measured) seen.product = std::max(seen.product, std::isnan(error) ? 0 : error);
    for (const formats::Statistics& cast : measured.casts) {
      seen.cast = std::max(seen.cast, std::sqrt(cast.squared_error / cast.squared_values));
    }
  }
  return seen;
}

Seen run_fault(FaultKind kind, bool transient, double strength, Comparison comparison) {
  const PlannedFault fault{.step_first = 3,
                           .step_last = transient ? 3 : 7,
                           .steps = transient ? 1 : 5,
                           .kind = kind,
                           .transient = transient};
  FaultHook hook({&fault, 1}, {.strength = strength, .seed = 1});
  return run_step(&hook, fault.step_last, comparison);  // where a drift has come furthest
}

/// Not what is wrong because of earlier steps: reenacted_bugs_test.cpp has these.
std::vector<FaultKindSpec> kinds_of_one_step() {
  std::vector<FaultKindSpec> kinds;
  for (const FaultKindSpec& spec : fault_kinds()) {
    if (spec.site != FaultSite::run && !is_reenacted_bug(spec.kind)) kinds.push_back(spec);
  }
  return kinds;
}

TEST(FaultEvidence, IsSeenWhereTheSiteLetsIt) {
  const Seen clean = run_step(nullptr, 3, Comparison::projected);
  ASSERT_GT(clean.cast, 0.01);
  ASSERT_LT(clean.product, 0.1);
  for (const FaultKindSpec& spec : kinds_of_one_step()) {
    SCOPED_TRACE(spec.name);
    const Seen patrol = run_fault(spec.kind, false, 64, Comparison::projected);
    const Seen trial = run_fault(spec.kind, false, 64, Comparison::full);
    const Seen gone = run_fault(spec.kind, true, 64, Comparison::full);
    if (spec.site == FaultSite::cast) {
      EXPECT_GT(patrol.cast, 3 * clean.cast);
    } else {
      EXPECT_LT(patrol.cast, 1.5 * clean.cast) << "the cast's evidence was not to see it";
    }
    EXPECT_GT(patrol.product, 3 * clean.product);
    EXPECT_GT(trial.product, 3 * clean.product);
    EXPECT_LT(gone.product, 1.5 * clean.product) << "a transient fault is there in the trial";
  }
}

TEST(FaultEvidence, IsMilderForLess) {
  for (const FaultKindSpec& spec : kinds_of_one_step()) {
    if (spec.kind == FaultKind::nan_gradient || spec.kind == FaultKind::forward_overflow) continue;  // not by strength
    SCOPED_TRACE(spec.name);
    const double strong = run_fault(spec.kind, false, 64, Comparison::full).product;
    const double mild = run_fault(spec.kind, false, 4, Comparison::full).product;
    EXPECT_LT(mild, 0.8 * strong);
    EXPECT_GT(strong, 0.2);
  }
}

}  // namespace
}  // namespace gnmr::lab

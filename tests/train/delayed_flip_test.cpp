// SPDX-License-Identifier: Apache-2.0
// Healthy units are sent to high precision in a run with delayed scaling, and released again: the loss must not move by
// it, neither when they go nor when they come back.
//
// What a flip can do: it swaps one path for the other, on the same weights and the same batch. Both paths' losses are
// therefore taken in every step; their difference is what a flip in that step moves the loss by. In a run without
// flips it is the rounding of the low path: the largest mean over ten steps is the noise, and twice that the bound.
// Scales that are out of date at the release make the low path saturate, and the difference leaves the bound by far:
// shown by the same run with histories that stand still in recovery.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "gnmr/train/schedule.h"
#include "train/small_run.h"

namespace gnmr::train {
namespace {

constexpr std::int64_t kWindow = 10;  // steps that a mean is taken over
constexpr std::int64_t kCalm = 40;    // steps before the entry that are looked at

/// When all units go to high precision and come back, and how the run is trained.
struct Plan {
  std::shared_ptr<const nn::Recipe> recipe;
  std::int64_t entry;    // the first step that runs high
  std::int64_t release;  // the first that runs low again
  double final_share;    // of the learning rate
  std::int64_t last() const { return release + kWindow; }
};

/// What becomes of the units and of what they remember.
enum class Recovery { none, remembers, forgets };

struct PathLosses {
  double low = 0;
  double high = 0;
  double trained = 0;
};

/// A run by hand, so that both paths can be asked about the same weights.
std::vector<PathLosses> run(const Plan& plan, Recovery recovery) {
  const testing::SmallRuns files;
  const run::TrainSettings settings = files.settings("run");
  models::Llama model(models::load_config(settings.model));
  model->initialise(0);
  const Data data({.files = settings.data, .batch = 8, .sequence = 32});
  nn::RecoverableUnits units(*model, plan.recipe, {});
  AdamW optimizer(optimized_parameters(*model), {.weight_decay = 0});
  const Schedule schedule{.highest = 0.004, .final_share = plan.final_share, .warmup_steps = 20, .steps = plan.last()};
  std::vector<UnitIndex> all;
  for (UnitIndex unit = 0; unit < units.units().size(); ++unit) all.push_back(unit);
  auto memory = units.memory();
  std::vector<PathLosses> losses;
  for (std::int64_t step = 1; step <= plan.last(); ++step) {
    const Batch batch = data.training_batch(step, 0);
    const bool high = recovery != Recovery::none && step >= plan.entry && step < plan.release;
    units.request(high ? std::span<const UnitIndex>(all) : std::span<const UnitIndex>());
    units.begin_step(step);
    const auto loss_on = [&](bool all_high) {
      const c10::AutoGradMode no_gradients(false);
      const nn::EvaluationPaths paths(units, all_high ? nn::EvaluatedPath::high : nn::EvaluatedPath::low);
      return model->loss(batch.tokens, batch.targets).item<double>();
    };
    PathLosses& seen = losses.emplace_back();
    if (step >= plan.entry - kCalm) seen = {.low = loss_on(false), .high = loss_on(true)};
    const at::Tensor loss = model->loss(batch.tokens, batch.targets);
    seen.trained = loss.item<double>();
    loss.backward();
    units.end_step();
    if (recovery == Recovery::forgets && high) {
      units.restore_memory(memory);
    } else {
      memory = units.memory();
    }
    optimizer.step(learning_rate(schedule, step));
    model->zero_grad();
  }
  return losses;
}

const PathLosses& at_step(const std::vector<PathLosses>& losses, std::int64_t step) {
  return losses[static_cast<std::size_t>(step - 1)];
}

/// The mean difference of the paths over the steps from `first` on.
double mean_gap(const std::vector<PathLosses>& losses, std::int64_t first) {
  double sum = 0;
  for (std::int64_t step = first; step < first + kWindow; ++step) {
    sum += std::fabs(at_step(losses, step).low - at_step(losses, step).high);
  }
  return sum / kWindow;
}

/// Twice the largest mean difference in a run without flips.
double bound(const Plan& plan) {
  const std::vector<PathLosses> calm = run(plan, Recovery::none);
  double noise = 0;
  for (std::int64_t first = plan.entry - kCalm; first + kWindow <= plan.last(); ++first) {
    noise = std::max(noise, mean_gap(calm, first));
  }
  EXPECT_GT(noise, 0);
  EXPECT_LT(noise, 0.02) << "the low path is healthy";
  EXPECT_LT(calm.back().trained, 1.5) << "and it learns";
  return 2 * noise;
}

TEST(DelayedFlip, HealthyUnitsGoAndComeBackUnnoticedLateInARun) {
  const Plan plan{.recipe = std::make_shared<const nn::Recipe>(recipes::load_recipe("fp8-delayed")),
                  .entry = 150,
                  .release = 190,
                  .final_share = 0.1};
  const double limit = bound(plan);
  const std::vector<PathLosses> seen = run(plan, Recovery::remembers);
  EXPECT_LT(mean_gap(seen, plan.entry), limit);
  EXPECT_LT(mean_gap(seen, plan.release), limit);
  // The step itself runs on the path that it was sent to.
  EXPECT_EQ(at_step(seen, plan.entry - 1).trained, at_step(seen, plan.entry - 1).low);
  EXPECT_EQ(at_step(seen, plan.entry).trained, at_step(seen, plan.entry).high);
  EXPECT_EQ(at_step(seen, plan.release - 1).trained, at_step(seen, plan.release - 1).high);
  EXPECT_EQ(at_step(seen, plan.release).trained, at_step(seen, plan.release).low);
}

TEST(DelayedFlip, HistoriesThatStoodStillWouldBeNoticed) {
  // Scales are renewed every 20 steps, and the recovery is long and early: magnitudes grow meanwhile.
  const std::string rest = R"("scaling":"delayed","history":4,"interval":20})";
  const std::string json = R"({"name":"slow","input":{"format":"e4m3",)" + rest + R"(,"weight":{"format":"e4m3",)" +
                           rest + R"(,"output_gradient":{"format":"e5m2",)" + rest + "}";
  const Plan plan{.recipe = std::make_shared<const nn::Recipe>(recipes::parse_recipe(json)),
                  .entry = 50,
                  .release = 180,
                  .final_share = 1};
  const double limit = bound(plan);
  const std::vector<PathLosses> remembered = run(plan, Recovery::remembers);
  EXPECT_LT(mean_gap(remembered, plan.entry), limit);
  EXPECT_LT(mean_gap(remembered, plan.release), limit);
  EXPECT_GT(mean_gap(run(plan, Recovery::forgets), plan.release), limit);
}

}  // namespace
}  // namespace gnmr::train

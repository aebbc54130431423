// SPDX-License-Identifier: Apache-2.0
// Healthy units are sent to high precision late in a run with delayed scaling, and released again: the loss must not
// move by it, neither when they go nor when they come back.
//
// What a flip can do: it swaps one path for the other on the same weights and the same batch. In a calm step the two
// differ by the rounding of the low path, and this is what a flip may move the loss by. So both paths' losses are taken
// in every step; the largest difference over the calm steps before is the noise, and twice that the bound. When scales
// are out of date at the release, the low path saturates and the difference leaves the bound by far: shown by the same
// run with histories that stand still in recovery.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "train/small_run.h"

namespace gnmr::train {
namespace {

constexpr std::int64_t kEntry = 150;    // the first step that runs high
constexpr std::int64_t kRelease = 230;  // the first that runs low again
constexpr std::int64_t kLast = 250;
constexpr std::int64_t kCalm = 40;  // steps before the entry that the noise is taken from

struct PathLosses {
  double low;
  double high;
  double trained;
};

/// A run by hand, so that both paths can be asked about the same weights.
std::vector<PathLosses> run(const std::string& recipe_json, bool flips, bool frozen) {
  const testing::SmallRuns files;
  const run::TrainSettings settings = files.settings("run");
  models::Llama model(models::load_config(settings.model));
  model->initialise(0);
  const Data data({.files = settings.data, .batch = 8, .sequence = 32});
  nn::RecoverableUnits units(*model, std::make_shared<const nn::Recipe>(recipes::parse_recipe(recipe_json)), {});
  AdamW optimizer(optimized_parameters(*model), {});
  const Schedule schedule{.highest = 0.004, .final_share = 0.5, .warmup_steps = 20, .steps = kLast};
  std::vector<UnitIndex> all;
  for (UnitIndex unit = 0; unit < units.units().size(); ++unit) all.push_back(unit);
  auto memory = units.memory();
  std::vector<PathLosses> losses;
  for (std::int64_t step = 1; step <= kLast; ++step) {
    const Batch batch = data.training_batch(step, 0);
    const bool in_recovery = flips && step >= kEntry && step < kRelease;
    if (in_recovery) {
      units.request(all);
    } else {
      units.request({});
    }
    units.begin_step(step);
    const auto loss_on = [&](bool high) {
      const c10::AutoGradMode no_gradients(false);
      const nn::EvaluationPaths paths(units, high);
      return model->loss(batch.tokens, batch.targets).item<double>();
    };
    PathLosses& seen = losses.emplace_back();
    if (step >= kEntry - kCalm) seen = {.low = loss_on(false), .high = loss_on(true), .trained = 0};
    const at::Tensor loss = model->loss(batch.tokens, batch.targets);
    seen.trained = loss.item<double>();
    loss.backward();
    units.end_step();
    if (frozen && in_recovery) {
      units.restore_memory(memory);
    } else {
      memory = units.memory();
    }
    optimizer.step(learning_rate(schedule, step));
    model->zero_grad();
  }
  return losses;
}

double gap(const PathLosses& losses) { return std::fabs(losses.low - losses.high); }

double largest_gap(const std::vector<PathLosses>& losses, std::int64_t first, std::int64_t last) {
  double largest = 0;
  for (std::int64_t step = first; step <= last; ++step) {
    largest = std::max(largest, gap(losses[static_cast<std::size_t>(step - 1)]));
  }
  return largest;
}

std::string delayed_recipe(int interval) {
  const std::string rest =
      R"("scaling":"delayed","history":4,"choice":"largest","interval":)" + std::to_string(interval) + "}";
  return R"({"name":"delayed","input":{"format":"e4m3",)" + rest + R"(,"weight":{"format":"e4m3",)" + rest +
         R"(,"output_gradient":{"format":"e5m2",)" + rest + "}";
}

TEST(DelayedFlip, Explore) {
  for (const int interval : {1, 20}) {
    for (const bool frozen : {false, true}) {
      const auto seen = run(delayed_recipe(interval), true, frozen);
      std::printf("interval %d frozen %d: noise %.5f entry %.5f recovery %.5f release %.5f after %.5f loss %.3f\n",
                  interval, frozen, largest_gap(seen, kEntry - kCalm, kEntry - 1), gap(seen[kEntry - 1]),
                  largest_gap(seen, kEntry, kRelease - 1), gap(seen[kRelease - 1]), largest_gap(seen, kRelease, kLast),
                  seen.back().trained);
    }
  }
}

}  // namespace
}  // namespace gnmr::train

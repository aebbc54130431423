// SPDX-License-Identifier: Apache-2.0
// Runs with one known trouble: a low path that is wrong in some batches, or batches that are bad.
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gnmr/lab/injection/harm_measurement.h"
#include "torch/cutting_hook.h"
#include "train/small_run.h"

namespace gnmr::train::testing {

using nn::testing::CuttingHook;
using nn::testing::Site;

/// A hook that does what another does in some steps only.
class StepHook : public nn::LowPathHook {
 public:
  StepHook(CuttingHook& hook, std::set<std::int64_t> steps, bool makes_nan)
      : hook_(hook), steps_(std::move(steps)), makes_nan_(makes_nan) {}
  at::Tensor before_cast(const nn::LowPathCall& call, recipes::Operand operand, const at::Tensor& matrix) override {
    return steps_.contains(call.step) ? hook_.before_cast(call, operand, matrix) : matrix;
  }
  at::Tensor in_cast(const nn::LowPathCall& call, recipes::Operand operand, const at::Tensor& matrix) override {
    return steps_.contains(call.step) ? hook_.in_cast(call, operand, matrix) : matrix;
  }
  at::Tensor after_cast(const nn::LowPathCall& call, recipes::Operand operand, const at::Tensor& cast) override {
    return steps_.contains(call.step) ? hook_.after_cast(call, operand, cast) : cast;
  }
  at::Tensor after_product(const nn::LowPathCall& call, const at::Tensor& result) override {
    if (!steps_.contains(call.step)) return result;
    if (fails_again && call.rerun && failed_.insert(call.step).second) throw std::bad_alloc();
    const at::Tensor changed = hook_.after_product(call, result);
    return makes_nan_ && !changed.is_same(result) ? result * std::nan("") : changed;
  }

  bool fails_again = false;  // the first rerun of a step has no memory

 private:
  CuttingHook& hook_;
  std::set<std::int64_t> steps_;
  std::set<std::int64_t> failed_;
  bool makes_nan_;
};

/// What one test does to a run.
struct Trouble {
  std::set<std::int64_t> steps = {};  // in which the low path of layer 4 (layers.0.gate) is wrong
  Site site = Site::in_cast;
  bool transient = false;
  bool makes_nan = false;                   // at the site after_product
  std::set<std::int64_t> bad_batches = {};  // steps
  bool fails_again = false;                 // there is no memory for a rerun
};

class TestExperiment : public Experiment {
 public:
  TestExperiment(const Trouble& trouble, const lab::ExperimentSettings& settings)
      : trouble_(trouble),
        settings_(settings),
        cutting_(trouble.site, 4),
        hook_(cutting_, trouble.steps, trouble.makes_nan) {
    cutting_.only_first_runs = trouble.transient;
    hook_.fails_again = trouble.fails_again;
  }
  nn::LowPathHook* hook() override { return &hook_; }
  void change_batch(std::int64_t step, std::int64_t, Batch& batch) override {
    // One token again and again, and another one to be guessed: a loss and gradients that are large.
    if (!trouble_.bad_batches.contains(step)) return;
    batch.tokens = at::full_like(batch.tokens, 7);
    batch.targets = at::full_like(batch.targets, 200);
  }
  bool chooses_units() const override { return settings_.oracle; }
  std::vector<UnitIndex> chosen_units(std::int64_t step, const ChoiceLimits&, std::span<const Unit>) const override {
    return trouble_.steps.contains(step) ? std::vector<UnitIndex>{4} : std::vector<UnitIndex>{};
  }
  void open_files(const run::RunFolder& folder, io::ExistingFile existing) override {
    if (settings_.harm) harm_.emplace(folder.harm(), existing);
  }
  void measure(std::int64_t batch, nn::RecoverableUnits& units, const std::function<void()>& run_batch) override {
    if (!harm_ || !trouble_.steps.contains(batch)) return;
    const std::vector<std::uint32_t> layers{4};
    for (const lab::LayerHarm& one : lab::measure_harm(units, layers, &hook_, run_batch)) {
      harm_->write({.step = batch, .layer = units.layer_names()[one.layer], .distance = one.distance});
    }
  }
  std::uint64_t close_files() override {
    if (harm_) harm_->close();
    return 0;
  }

 private:
  Trouble trouble_;
  lab::ExperimentSettings settings_;
  CuttingHook cutting_;
  StepHook hook_;
  std::optional<run::HarmWriter> harm_;
};

inline MakeExperiment with(const Trouble& trouble) {
  return [trouble](const run::TrainSettings& settings, const std::vector<std::string>& names) {
    EXPECT_EQ(names.at(4), "layers.0.gate");
    return std::make_unique<TestExperiment>(trouble, settings.experiment);
  };
}

inline run::TrainSettings trial_settings(const SmallRuns& runs, const std::string& name) {
  run::TrainSettings settings = runs.settings(name);
  settings.recipe = "fp8-tensorwise";
  settings.patrol = 1;
  settings.options.max_o = 2;
  settings.options.lock_steps = 3;
  settings.options.warmup_samples = 5;
  // A model as small as this one has errors that vary, and norms that jump.
  settings.options.error_floor = 0.25;
  settings.options.error_ceiling = 12;
  return settings;
}

inline std::vector<io::JournalTrial> trials_of(const run::TrainSettings& settings) {
  std::vector<io::JournalTrial> trials;
  for (const io::JournalStepEntry& entry : io::read_journal(settings.out + "/journal.jsonl").steps) {
    trials.insert(trials.end(), entry.trials.begin(), entry.trials.end());
  }
  return trials;
}

/// A run with a gate that closes on what is not finite.
inline run::TrainSettings late_settings(const SmallRuns& runs, const std::string& name) {
  run::TrainSettings settings = trial_settings(runs, name);
  settings.patrol = 0;                     // the gate goes by norms
  settings.options.warmup_samples = 1000;  // and only by what is not finite: the norms of so small a model jump
  settings.options.lag = 1;
  return settings;
}

/// A low path that makes everything non-finite: the norms cannot miss it.
inline Trouble nan_in(std::set<std::int64_t> batches) {
  return {.steps = std::move(batches), .site = nn::testing::Site::after_product, .makes_nan = true};
}

}  // namespace gnmr::train::testing

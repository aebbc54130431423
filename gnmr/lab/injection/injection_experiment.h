// SPDX-License-Identifier: Apache-2.0
// The experiment on a run: injected faults, an oracle that knows them, their harm, transplanted outliers, and a rival's
// rule.
//
// Goals: what the trainer's interface asks for, put together from the plan, its truth and the hook. Non-goals: rivals
// (gnmr/lab/rivals): a rule is handed in.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gnmr/lab/injection/fault_hook.h"
#include "gnmr/lab/injection/fault_plan.h"
#include "gnmr/run/harm.h"
#include "gnmr/run/train_settings.h"
#include "gnmr/train/experiment.h"

namespace gnmr::lab {

/// Tokens and targets that follow from chance alone: each token up to the batch's largest is as likely as any other.
/// The same batch gives the same one again; another batch (of another rank, say) gives another one.
train::Batch random_batch(const train::Batch& batch, std::int64_t seed, std::int64_t step, std::int64_t micro_batch);

/// Faults, oracle, harm, outliers and rule as the settings want them.
class InjectionExperiment : public train::Experiment {
 public:
  /// The settings are valid; the rule may be null.
  InjectionExperiment(const run::TrainSettings& settings, std::vector<std::string> layer_names,
                      std::unique_ptr<train::GradientRule> rule = nullptr);

  nn::LowPathHook* hook() override;
  void change_batch(std::int64_t batch, std::int64_t micro_batch, train::Batch& tokens) override;
  bool changes_weights(std::int64_t step) const override { return step == settings_.transplant_at; }
  void change_weights(std::span<const std::pair<std::string, at::Tensor>> tensors) override;
  bool chooses_units() const override { return settings_.oracle; }
  std::vector<UnitIndex> chosen_units(std::int64_t step, const train::ChoiceLimits& limits,
                                      std::span<const Unit> units) const override;
  train::GradientRule* gradient_rule() override { return rule_.get(); }
  void measure(std::int64_t batch, nn::RecoverableUnits& units, const std::function<void()>& run_batch) override;
  std::uint64_t fault_count() const override { return faults_.size(); }
  std::string fault_kinds() const override;
  void open_files(const run::RunFolder& folder, io::ExistingFile existing) override;
  void flush(std::chrono::milliseconds longest) override;
  std::uint64_t close_files() override;
  std::map<std::string, std::string> save() const override;
  void restore(const std::map<std::string, std::string>& entries) override;

  /// The planned faults.
  const std::vector<PlannedFault>& faults() const { return faults_; }

  /// The truth file and the list of faults as text (docs/files.md, docs/faults.md).
  std::string truth_text() const;
  std::string fault_list_text() const;

 private:
  ExperimentSettings settings_;
  std::int64_t run_steps_;
  std::vector<std::string> layer_names_;
  std::vector<PlannedFault> faults_;
  FaultHook hook_;
  std::unique_ptr<train::GradientRule> rule_;
  std::optional<run::HarmWriter> harm_;
};

/// The experiment that the settings and the rule ask for; null where they ask for none. An `Error` where the settings
/// of the experiment are wrong.
std::unique_ptr<InjectionExperiment> make_experiment(const run::TrainSettings& settings,
                                                     const std::vector<std::string>& layer_names,
                                                     std::unique_ptr<train::GradientRule> rule = nullptr);

}  // namespace gnmr::lab

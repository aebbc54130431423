// SPDX-License-Identifier: Apache-2.0
// The laboratory of a run with injected faults, and with a rival's rule where there is one.
//
// Goals: what the trainer asks for, put together of the plan, its truth and the hook. Non-goals: rivals
// (gnmr/lab/rivals): a rule is handed in.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "gnmr/lab/injection/fault_hook.h"
#include "gnmr/lab/injection/fault_plan.h"
#include "gnmr/run/train_settings.h"
#include "gnmr/train/gradient_rule.h"
#include "gnmr/train/laboratory.h"

namespace gnmr::lab {

/// Tokens and targets that follow from chance alone: each token up to the batch's largest is as likely as any other.
/// The same batch gives the same one again; another batch (of another rank, say) gives another one.
train::Batch random_batch(const train::Batch& batch, std::int64_t seed, std::int64_t step, std::int64_t micro_batch);

/// Faults as the settings want them.
class InjectionLaboratory : public train::Laboratory {
 public:
  /// The settings are valid (gnmr/run/train_settings.h); the rule may be null.
  InjectionLaboratory(const run::TrainSettings& settings, std::vector<std::string> layer_names,
                      std::unique_ptr<train::GradientRule> rule = nullptr);

  nn::LowPathHook* hook() override;
  void change_batch(std::int64_t step, std::int64_t micro_batch, train::Batch& batch) override;
  std::vector<std::uint32_t> faulty_layers(std::int64_t step) const override;
  std::vector<std::uint32_t> oracle(std::int64_t step, std::int64_t lock_steps, std::uint32_t most) const override;
  std::uint64_t fault_count() const override { return faults_.size(); }
  std::string truth_text() const override;
  std::string fault_list_text() const override;
  std::string save() const override { return hook_.save(); }
  void restore(const std::string& text) override { hook_.restore(text); }
  train::GradientRule* gradient_rule() override { return rule_.get(); }

 private:
  std::vector<std::string> layer_names_;
  std::vector<PlannedFault> faults_;
  FaultHookSettings hook_settings_;
  FaultHook hook_;
  std::int64_t run_steps_;
  std::unique_ptr<train::GradientRule> rule_;
};

/// The laboratory that the settings ask for; null where they want no faults, no oracle and no harm measured, and there
/// is no rule.
std::unique_ptr<train::Laboratory> make_laboratory(const run::TrainSettings& settings,
                                                   const std::vector<std::string>& layer_names,
                                                   std::unique_ptr<train::GradientRule> rule = nullptr);

}  // namespace gnmr::lab

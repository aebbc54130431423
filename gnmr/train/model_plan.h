// SPDX-License-Identifier: Apache-2.0
// How a trainer gets its model: an architecture plans it, and makes it when everything else is known to be right.
//
// Goals: the trainer knows `models::LanguageModel` only. Non-goals: which architectures there are.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>

#include "gnmr/models/language_model.h"
#include "gnmr/run/train_settings.h"

namespace gnmr::train {

/// A model that is not there yet.
struct ModelPlan {
  std::int64_t vocabulary = 0;  // 0: its batches are numbers of samples, without data
  std::function<std::shared_ptr<models::LanguageModel>()> make = {};  // on the device, with its first weights
};

/// Plans the model of some settings on a device; an `Error` where there is no such model or it cannot fit.
using PlanModel = std::function<ModelPlan(const run::TrainSettings& settings, const at::Device& device)>;

/// The architecture that `settings.model` names: a student and its teacher, or LLaMA.
ModelPlan plan_any_model(const run::TrainSettings& settings, const at::Device& device);

/// The architecture of LLaMA.
ModelPlan plan_llama(const run::TrainSettings& settings, const at::Device& device);

}  // namespace gnmr::train

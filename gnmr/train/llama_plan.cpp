// SPDX-License-Identifier: Apache-2.0
#include "gnmr/core/error.h"
#include "gnmr/models/llama.h"
#include "gnmr/models/model_files.h"
#include "gnmr/train/checkpoint.h"
#include "gnmr/train/memory_need.h"
#include "gnmr/train/model_plan.h"

namespace gnmr::train {
namespace {

std::shared_ptr<models::LanguageModel> make_llama(const models::LlamaConfig& config, const run::TrainSettings& settings,
                                                  const at::Device& device) {
  models::Llama model(config);
  model->initialise(static_cast<std::uint64_t>(settings.seed));
  if (!settings.init.empty()) model->assign(read_initial_model(settings.init), settings.init);
  if (settings.outliers > 1) model->add_outliers(settings.outliers);
  model->to(device);
  if (settings.dtype == "bfloat16") model->to(at::kBFloat16);
  model->set_recompute(settings.recompute);
  model->set_graphs(settings.graphs);
  return model.ptr();
}

}  // namespace

ModelPlan plan_llama(const run::TrainSettings& settings, const at::Device& device) {
  const models::LlamaConfig config = models::load_config(settings.model);
  if (settings.sequence > config.max_positions) {
    throw Error("--sequence " + std::to_string(settings.sequence) + ": the model has " +
                std::to_string(config.max_positions) + " positions");
  }
  const double tokens = static_cast<double>(settings.batch) * static_cast<double>(settings.sequence);
  check_memory(settings.model, memory_need(config, tokens), device);
  return {.vocabulary = config.vocabulary, .make = [=] { return make_llama(config, settings, device); }};
}

}  // namespace gnmr::train

// SPDX-License-Identifier: Apache-2.0
#include "gnmr/core/error.h"
#include "gnmr/models/student_teacher.h"
#include "gnmr/train/checkpoint.h"
#include "gnmr/train/memory_need.h"
#include "gnmr/train/model_plan.h"

namespace gnmr::train {
namespace {

std::shared_ptr<models::LanguageModel> make_student(const models::StudentTeacherConfig& config,
                                                    const run::TrainSettings& settings, const at::Device& device) {
  models::StudentTeacher model(config);
  model->initialise(static_cast<std::uint64_t>(settings.seed));
  if (!settings.init.empty()) model->assign(read_initial_model(settings.init), settings.init);
  model->to(device);
  if (settings.dtype == "bfloat16") model->to(at::kBFloat16);
  return model.ptr();
}

ModelPlan plan_student(const models::StudentTeacherConfig& config, const run::TrainSettings& settings,
                       const at::Device& device) {
  const auto refuse = [](const char* setting, const char* why) {
    throw Error(std::string("--") + setting + ": the model student-teacher " + why);
  };
  if (!settings.data.empty()) refuse("data", "makes its own samples");
  if (!settings.then_data.empty()) refuse("then-data", "makes its own samples");
  if (settings.outliers > 1) refuse("outliers", "has none to add");
  if (settings.experiment.transplant_at > 0) refuse("transplant-at", "has no SwiGLU");
  if (settings.recompute) refuse("recompute", "keeps its activations");
  if (settings.graphs) refuse("graphs", "runs without graphs");
  if (settings.save_activations != "high") refuse("save-activations", "has norms, whose inputs are saved as they are");
  check_memory(settings.model, memory_need(static_cast<double>(models::parameter_count(config))), device);
  return {.make = [=] { return make_student(config, settings, device); }};
}

}  // namespace

ModelPlan plan_any_model(const run::TrainSettings& settings, const at::Device& device) {
  if (const auto config = models::find_student_teacher(settings.model)) return plan_student(*config, settings, device);
  return plan_llama(settings, device);
}

}  // namespace gnmr::train

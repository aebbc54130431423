// SPDX-License-Identifier: Apache-2.0
// What Python finds in the library, with torch.ops.load_library: `torch.ops.gnmr.train(settings, group)`.
#include <torch/library.h>

#include "gnmr/engine/experiment.h"
#include "gnmr/io/json.h"
#include "gnmr/torch/collective.h"
#include "gnmr/torch/squared_norm.h"
#include "gnmr/train/trainer.h"

namespace gnmr::engine {
namespace {

/// Reports nothing on the way; what matters comes back at the end.
class SilentObserver : public run::TrainObserver {
 public:
  void started(const run::TrainStart&) override {}
  void stepped(const run::TrainLine& line) override {
    losses.push_back(line.loss);
    seconds.push_back(line.seconds.value_or(0));
  }
  void evaluated(const run::EvalLine&) override {}
  void noted(const std::string& text) override { notes.push_back(text); }
  bool stop_wanted() override { return false; }
  std::optional<Mode> mode_wanted() override { return {}; }
  std::vector<double> losses;
  std::vector<double> seconds;
  std::vector<std::string> notes;
};

/// Trains this rank's part of a run; settings and result are JSON. `group` names a process group of torch.distributed;
/// empty: this process alone.
std::string train_rank(const std::string& settings_json, const std::string& group) {
  const run::TrainSettings settings = run::read_settings(settings_json);
  nn::Collective alone;
  std::unique_ptr<nn::Collective> together;
  if (!group.empty()) together = nn::process_group(group);
  SilentObserver observer;
  train::Trainer trainer(settings, observer, together != nullptr ? *together : alone, makers());
  const run::TrainOutcome outcome = trainer.run();
  io::OrderedJson weights = io::OrderedJson::array();
  for (const at::Tensor& parameter : trainer.model().parameters()) weights.push_back(nn::squared_norm(parameter));
  return io::json_line({{"admissions", outcome.control.admissions},
                        {"control_share", outcome.seconds.control / outcome.seconds.steps},
                        {"loss_high", outcome.loss_high.value_or(0)},
                        {"losses", observer.losses},
                        {"norm_share", outcome.seconds.norms / outcome.seconds.steps},
                        {"notes", observer.notes},
                        {"recovered", trainer.recovered_by_step()},
                        {"risks", outcome.control.risks},
                        {"seconds", observer.seconds},
                        {"weights", std::move(weights)}});
}

}  // namespace
}  // namespace gnmr::engine

TORCH_LIBRARY(gnmr, library) { library.def("train(str settings, str group) -> str", gnmr::engine::train_rank); }

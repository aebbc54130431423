// SPDX-License-Identifier: Apache-2.0
// What programs find in the library: gnmr/run/engine.h.
#include "gnmr/run/engine.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <torch/version.h>

#include "gnmr/engine/experiment.h"
#include "gnmr/torch/collective.h"
#include "gnmr/train/trainer.h"

namespace gnmr::engine {
namespace {

class TorchEngine : public run::Engine {
 public:
  std::string about() const override {
    return std::string("torch ") + TORCH_VERSION + (at::hasCUDA() ? ", CUDA" : ", CPU only") + ", " +
           std::to_string(at::get_num_threads()) + " threads";
  }

  run::TrainOutcome train(const run::TrainSettings& settings, run::TrainObserver& observer,
                          const std::string& group) override {
    try {
      const std::unique_ptr<nn::Collective> ranks =
          group.empty() ? std::make_unique<nn::Collective>() : nn::process_group(group);
      train::Trainer trainer(settings, observer, *ranks, makers());
      return trainer.run();
    } catch (const c10::Error& error) {
      throw std::runtime_error(std::string("torch: ") + error.what_without_backtrace());
    }
  }
};

}  // namespace
}  // namespace gnmr::engine

extern "C" __attribute__((visibility("default"))) gnmr::run::Engine* gnmr_engine_open(std::uint64_t interface) {
  static gnmr::engine::TorchEngine engine;
  return interface == gnmr::run::kEngineInterface ? &engine : nullptr;
}
